"""Compares the latencies and errors of a canary with its control's by tenant, for reports."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.canary.arm import Arm
from penstock.core.canary.counts import Counts
from penstock.core.canary.tenants import NO_TENANT_DATA, OTHERS
from penstock.core.rollout.by_prompt_length import MeanPair, mean_pair


@dataclass(frozen=True, slots=True)
class TenantComparison:
    """Latencies and errors of one tenant on both sides. name: empty for all remaining tenants."""

    name: str
    ttft: MeanPair
    tpot: MeanPair
    canary: Counts
    control: Counts


def compare_by_tenant(canary: Arm, control: Arm) -> Iterator[TenantComparison]:
    """Yield tenants by descending number of requests on the canary; the remaining tenants come last."""
    names = canary.tenants.keys() | control.tenants
    requests = {name: canary.tenants.get(name, NO_TENANT_DATA).requests for name in names}
    for name in sorted(names, key=lambda name: (name == OTHERS, -requests[name], name)):
        ours, theirs = (
            canary.tenants.get(name, NO_TENANT_DATA),
            control.tenants.get(name, NO_TENANT_DATA),
        )
        yield TenantComparison(
            name,
            mean_pair(ours.ttft, theirs.ttft),
            mean_pair(ours.tpot, theirs.tpot),
            Counts(ours.requests, ours.errors),
            Counts(theirs.requests, theirs.errors),
        )
