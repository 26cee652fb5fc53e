"""Computes the number of pods on each side of a rollout."""

import math
from dataclasses import dataclass


def pods_for(weight: float, total: int) -> int:
    """Pods for a share of the traffic (0 to 1) when all of it needs `total` pods; at least one."""
    # 1e-9: rounding of products such as 0.05 * 20 must not add a pod.
    return max(1, math.ceil(weight * total - 1e-9))


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
    is_unschedulable: bool,
) -> tuple[int, int]:
    """Next replicas of a rolling update, as (new, old), on the way to `total` and 0.

    surge, unavailable: like maxSurge and maxUnavailable of a Deployment, with one difference: fewer than
    `total` ready pods are allowed only if is_unschedulable (some new pods are unschedulable) or surge is 0.
    """
    allowed = unavailable if is_unschedulable or not surge else 0
    # Old pods that are not ready serve nothing; the Deployment controller deletes those first.
    spare = old.replicas + new.ready - (total - allowed)
    wanted_old = old.replicas - max(0, min(old.replicas, spare))
    room = total + surge - old.replicas
    return max(min(new.replicas, total), min(total, room)), wanted_old
