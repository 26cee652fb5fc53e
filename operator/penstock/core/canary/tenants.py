"""Outcomes and latencies by tenant, for a bounded number of tenants; the rest is merged into one.

A tenant's name is that of its Tenant. The bound keeps reports small where a cluster has thousands of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.canary.moments import NOTHING, Moments

MAX_TENANTS = 30
OTHERS = ""


@dataclass(frozen=True, slots=True)
class TenantCounts:
    """Statistics of one tenant. requests: finished, with failed ones. ttft, tpot: log seconds."""

    requests: int = 0
    errors: int = 0
    ttft: Moments = NOTHING
    tpot: Moments = NOTHING

    def plus(self, other: "TenantCounts") -> "TenantCounts":
        return TenantCounts(
            self.requests + other.requests,
            self.errors + other.errors,
            self.ttft.plus(other.ttft),
            self.tpot.plus(other.tpot),
        )

    def increase_over(self, earlier: "TenantCounts") -> "TenantCounts":
        return TenantCounts(
            self.requests - earlier.requests,
            self.errors - earlier.errors,
            self.ttft.increase_over(earlier.ttft),
            self.tpot.increase_over(earlier.tpot),
        )


NO_TENANT_DATA = TenantCounts()
Tenants = Mapping[str, TenantCounts]


def plus(left: Tenants, right: Tenants) -> Tenants:
    if not right:
        return left
    return {
        name: left.get(name, NO_TENANT_DATA).plus(right.get(name, NO_TENANT_DATA))
        for name in left.keys() | right
    }


def increase_over(later: Tenants, earlier: Tenants) -> Tenants:
    gained = {
        name: each.increase_over(earlier.get(name, NO_TENANT_DATA)) for name, each in later.items()
    }
    return {name: each for name, each in gained.items() if each.requests}


def fold_tenants(tenants: Tenants) -> Tenants:
    """Keep the tenants with the most requests and merge all others into OTHERS."""
    if len(tenants) <= MAX_TENANTS:
        return tenants
    ordered = sorted(tenants, key=lambda name: (name == OTHERS, -tenants[name].requests, name))
    rest = NO_TENANT_DATA
    for name in ordered[MAX_TENANTS - 1 :]:
        rest = rest.plus(tenants[name])
    return {name: tenants[name] for name in ordered[: MAX_TENANTS - 1]} | {OTHERS: rest}
