"""Requests and tokens in the system, from the gateway or else from the engines."""

from penstock.core.scaling.signals import EngineReading, GatewayReading, Missing, Observation


def open_requests(seen: Observation) -> float | None:
    """Queued and in flight; None when nobody can tell.

    Without a gateway: what the engines have, those that cannot be read taken for average ones.
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
    """Of ready pods that can be read."""
    return {p.name: p.reading for p in seen.ready if isinstance(p.reading, EngineReading)}


def held_back(seen: Observation) -> tuple[float, float]:
    """Requests and prompt tokens in the gateway's queue, a share for each ready pod.

    Rules that look at engines only come from stacks in which nobody else holds a request back.
    """
    if not isinstance(seen.gateway, GatewayReading) or not seen.ready:
        return 0.0, 0.0
    pods = len(seen.ready)
    return seen.gateway.queued / pods, seen.gateway.queued_prompt_tokens / pods
