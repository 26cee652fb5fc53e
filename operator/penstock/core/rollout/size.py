"""How many pods each side of a rollout gets."""

import math
from dataclasses import dataclass


def pods_for(weight: float, total: int) -> int:
    """Of a side with this share of the traffic, when all of it needs `total`: at least one."""
    # Of 0.05 * 20 and the like no rounding may make a pod more.
    return max(1, math.ceil(weight * total - 1e-9))


@dataclass(frozen=True, slots=True)
class Count:
    """Of one revision. replicas: asked for. ready: of those."""

    replicas: int
    ready: int


def replaced(
    total: int, new: Count, old: Count, *, surge: int, unavailable: int, is_starved: bool
) -> tuple[int, int]:
    """Replicas to ask for next, (of the new, of the old), on the way to `total` and 0.

    As a Deployment does it, but that fewer than `total` may be ready only where new pods find no
    room otherwise: is_starved says that some wait for it.
    """
    allowed = unavailable if is_starved or not surge else 0
    # Old pods that are not ready carry nothing, and are the first that a Deployment removes.
    spare = old.replicas + new.ready - (total - allowed)
    wanted_old = old.replicas - max(0, min(old.replicas, spare))
    room = total + surge - old.replicas
    return max(min(new.replicas, total), min(total, room)), wanted_old
