"""What came of the requests of each tenant: of so many, and of all others together.

Names are what clients send in a header that the service names. Whoever sends more names than there is
room for is counted among the others, so that no client can make a gateway remember without end.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.canary.moments import NOTHING, Moments

MAX_TENANTS = 30
MAX_NAME_CHARS = 63
OTHERS = ""


@dataclass(frozen=True, slots=True)
class Tenant:
    """requests: that ended, failed ones included. ttft, tpot: log seconds."""

    requests: int = 0
    errors: int = 0
    ttft: Moments = NOTHING
    tpot: Moments = NOTHING

    def plus(self, other: "Tenant") -> "Tenant":
        return Tenant(
            self.requests + other.requests,
            self.errors + other.errors,
            self.ttft.plus(other.ttft),
            self.tpot.plus(other.tpot),
        )

    def since(self, earlier: "Tenant") -> "Tenant":
        return Tenant(
            self.requests - earlier.requests,
            self.errors - earlier.errors,
            self.ttft.since(earlier.ttft),
            self.tpot.since(earlier.tpot),
        )


NOBODY = Tenant()
Tenants = Mapping[str, Tenant]


def name_of(header: str | None) -> str | None:
    """None of a request that names no tenant, or not as one can be shown."""
    if not header or not header.isprintable() or len(header) > MAX_NAME_CHARS:
        return None
    return header


def plus(left: Tenants, right: Tenants) -> Tenants:
    if not right:
        return left
    return {
        name: left.get(name, NOBODY).plus(right.get(name, NOBODY)) for name in left.keys() | right
    }


def since(later: Tenants, earlier: Tenants) -> Tenants:
    gained = {name: each.since(earlier.get(name, NOBODY)) for name, each in later.items()}
    return {name: each for name, each in gained.items() if each.requests}


def folded(tenants: Tenants) -> Tenants:
    """Those with the most requests, and all others together."""
    if len(tenants) <= MAX_TENANTS:
        return tenants
    ordered = sorted(tenants, key=lambda name: (name == OTHERS, -tenants[name].requests, name))
    rest = NOBODY
    for name in ordered[MAX_TENANTS - 1 :]:
        rest = rest.plus(tenants[name])
    return {name: tenants[name] for name in ordered[: MAX_TENANTS - 1]} | {OTHERS: rest}
