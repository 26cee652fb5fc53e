"""Shares accelerators among services that want more than there are.

    minimum replicas, higher priority first -> further replicas by priority, in even shares

Minimum replicas are guaranteed, so they come before any further replica. Within a priority the next replica
goes to the service with the smallest fraction of its wanted replicas.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim of a service. least: minimum replicas. accelerators: per replica."""

    service: str
    wanted: int
    least: int = 0
    priority: int = 0
    accelerators: int = 1


@dataclass(frozen=True, slots=True)
class Grant:
    """Granted replicas. reason: empty if all wanted replicas are granted."""

    replicas: int
    reason: str = ""


def share_accelerators(claims: Sequence[Claim], accelerators: int) -> dict[str, Grant]:
    """Grants by service: never more accelerators than there are, nor more replicas than wanted."""
    claims = sorted(claims, key=lambda claim: (-claim.priority, claim.service))
    granted = dict.fromkeys((claim.service for claim in claims), 0)
    left = accelerators
    for claim in claims:
        if claim.accelerators:
            granted[claim.service] = min(claim.least, claim.wanted, left // claim.accelerators)
            left -= granted[claim.service] * claim.accelerators
        else:
            granted[claim.service] = claim.wanted
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        peers = [claim for claim in claims if claim.priority == priority]
        while hungry := [
            c for c in peers if granted[c.service] < c.wanted and c.accelerators <= left
        ]:
            next_one = min(hungry, key=lambda c: (granted[c.service] / c.wanted, c.service))
            granted[next_one.service] += 1
            left -= next_one.accelerators
    return {claim.service: _grant(claim, granted, claims, accelerators) for claim in claims}


def _grant(
    claim: Claim, granted: dict[str, int], claims: Sequence[Claim], accelerators: int
) -> Grant:
    replicas = granted[claim.service]
    if replicas == claim.wanted:
        return Grant(replicas)
    before = [
        f"{other.service} with {granted[other.service] * other.accelerators}"
        for other in claims
        if other is not claim and granted[other.service] and other.accelerators
    ]
    shared = f", shared with {', '.join(before)}" if before else ""
    return Grant(
        replicas,
        f"{replicas} of {claim.wanted} wanted replicas: there are {accelerators} accelerators"
        f"{shared}",
    )
