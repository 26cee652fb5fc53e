"""Requests and tokens in the system, from the gateway or, without one, from the engines."""

from penstock.core.scaling.signals import EngineReading, GatewayReading, Missing, Observation


def open_requests(seen: Observation) -> float | None:
    """Queued and in-flight requests; None if unknown.

    Without a gateway, the requests of the engines; unreadable engines count as average ones.
    """
    gateway = seen.gateway
    if isinstance(gateway, GatewayReading):
        return gateway.queued + gateway.in_flight
    if isinstance(gateway, Missing):
        return None
    if not seen.ready:
        return 0.0
    readings = seen.readings
    if not readings:
        return None
    return sum(r.running + r.waiting for r in readings) / len(readings) * len(seen.ready)


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
