"""Readings of engines, with what the gateway holds back."""

from penstock.core.scaling.signals import EngineReading, GatewayReading, Observation


def readings_by_pod(seen: Observation) -> dict[str, EngineReading]:
    """Readings of the ready pods that can be scraped."""
    return {p.name: p.reading for p in seen.ready if isinstance(p.reading, EngineReading)}


def held_back(seen: Observation) -> tuple[float, float]:
    """Requests and prompt tokens in the gateway's queue, per ready pod.

    Rules that read only engines come from stacks without a queue outside the engines, so they count these.
    """
    if not isinstance(seen.gateway, GatewayReading) or not seen.ready:
        return 0.0, 0.0
    pods = len(seen.ready)
    return seen.gateway.queued / pods, seen.gateway.queued_prompt_tokens / pods
