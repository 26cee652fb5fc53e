"""How every rule words its number."""

from penstock.core.scaling.rule import Bounds, Decision, TrailEntry
from penstock.core.scaling.signals import Observation


def held(bounds: Bounds, seen: Observation, reason: str, code: str) -> Decision:
    """What is provisioned stays, for want of data."""
    return Decision(bounds.clip(seen.provisioned), reason, code, valid=False)


def unchanged(bounds: Bounds, seen: Observation, reason: str, code: str) -> Decision:
    """What is provisioned stays, and should."""
    return Decision(bounds.clip(seen.provisioned), reason, code)


def decided(
    bounds: Bounds, seen: Observation, wanted: int, why: str, trail: tuple[TrailEntry, ...] = ()
) -> Decision:
    """`wanted` within bounds; the code says which way that is."""
    desired = bounds.clip(wanted)
    if desired != wanted:
        note = f"between {bounds.min_replicas} and {bounds.max_replicas}"
        trail = (*trail, TrailEntry("bounds", desired, note))
    now = seen.provisioned
    if desired == now:
        return Decision(desired, f"{now} replicas stay: {why}", "Steady", trail)
    code = "ScaleUp" if desired > now else "ScaleDown"
    return Decision(desired, f"{now} to {desired} replicas: {why}", code, trail)
