"""Builds the decisions of all baselines, with a common wording."""

from penstock.core.scaling.rule import Bounds, Decision, TrailEntry
from penstock.core.scaling.signals import Observation


def held(bounds: Bounds, seen: Observation, reason: str, code: str) -> Decision:
    """Keep the provisioned replicas because data is missing."""
    return Decision(bounds.clip(seen.provisioned), reason, code, valid=False)


def unchanged(bounds: Bounds, seen: Observation, reason: str, code: str) -> Decision:
    """Keep the provisioned replicas by decision."""
    return Decision(bounds.clip(seen.provisioned), reason, code)


def decided(
    bounds: Bounds, seen: Observation, wanted: int, why: str, trail: tuple[TrailEntry, ...] = ()
) -> Decision:
    """Decision for `wanted` replicas within bounds; its code names the direction."""
    desired = bounds.clip(wanted)
    if desired != wanted:
        note = f"between {bounds.min_replicas} and {bounds.max_replicas}"
        trail = (*trail, TrailEntry("bounds", desired, note))
    now = seen.provisioned
    if desired == now:
        return Decision(desired, f"{now} replicas stay: {why}", "Steady", trail)
    code = "ScaleUp" if desired > now else "ScaleDown"
    return Decision(desired, f"{now} to {desired} replicas: {why}", code, trail)
