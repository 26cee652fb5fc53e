"""Computes the number of pods on each side of a rollout."""

import math
from dataclasses import dataclass

from penstock.core.spec.rollout import Amount


def pods_for(weight: float, total: int) -> int:
    """Pods for a share of the traffic (0 to 1) when all of it needs `total` pods; at least one."""
    # 1e-9: rounding of products such as 0.05 * 20 must not add a pod.
    return max(1, math.ceil(weight * total - 1e-9))


def resolve_limits(surge: Amount, unavailable: Amount, total: int) -> tuple[int, int]:
    """maxSurge and maxUnavailable in replicas, of which a percentage is of `total`.

    As of a Deployment: the surge is rounded up, unavailable down, and if both are 0, unavailable is 1.
    """
    surge_replicas = math.ceil(_hundredths(surge, total) / 100)
    unavailable_replicas = _hundredths(unavailable, total) // 100
    if surge_replicas == unavailable_replicas == 0:
        unavailable_replicas = 1
    return surge_replicas, unavailable_replicas


def _hundredths(amount: Amount, total: int) -> int:
    """Hundredths of a replica."""
    return 100 * amount if isinstance(amount, int) else int(amount.removesuffix("%")) * total


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """Replica counts of one revision. replicas: requested. ready: of the requested ones."""

    replicas: int
    ready: int


def next_replicas(
    total: int,
    new: ReplicaCounts,
    old: ReplicaCounts,
    *,
    surge: int,
    unavailable: int,
    lacks_room: bool,
) -> tuple[int, int]:
    """Next replicas of a rolling update, as (new, old), on the way to `total` and 0.

    surge, unavailable: like maxSurge and maxUnavailable of a Deployment, with one difference: fewer than
    `total` ready pods are allowed only if lacks_room (new pods find no room, on a node or in a quota) or
    surge is 0.
    """
    allowed = unavailable if lacks_room or not surge else 0
    # Old pods that are not ready serve nothing; the Deployment controller deletes those first.
    spare = old.replicas + new.ready - (total - allowed)
    wanted_old = old.replicas - max(0, min(old.replicas, spare))
    room = total + surge - old.replicas
    return max(min(new.replicas, total), min(total, room)), wanted_old
