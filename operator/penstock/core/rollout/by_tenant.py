"""A canary's latencies and errors beside its control's, for each tenant."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import Arm
from penstock.core.canary.tenants import NOBODY, OTHERS
from penstock.core.rollout.by_bin import Pair, pair


@dataclass(frozen=True, slots=True)
class OfTenant:
    """name: empty of all others together."""

    name: str
    ttft: Pair
    tpot: Pair
    canary: Counts
    control: Counts


def by_tenant(canary: Arm, control: Arm) -> Iterator[OfTenant]:
    """The one with the most requests on the canary first, all others last."""
    names = canary.tenants.keys() | control.tenants
    requests = {name: canary.tenants.get(name, NOBODY).requests for name in names}
    for name in sorted(names, key=lambda name: (name == OTHERS, -requests[name], name)):
        ours, theirs = canary.tenants.get(name, NOBODY), control.tenants.get(name, NOBODY)
        yield OfTenant(
            name,
            pair(ours.ttft, theirs.ttft),
            pair(ours.tpot, theirs.tpot),
            Counts(ours.requests, ours.errors),
            Counts(theirs.requests, theirs.errors),
        )
