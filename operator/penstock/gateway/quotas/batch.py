"""A call of the shared store, and its reply."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.core.tenants.lease import Demand, Lease
from penstock.core.tenants.limits import Window
from penstock.core.tenants.slots import SlotLease

# Beginning of all keys in the store.
PREFIX = "penstock:"
# Time without a call after which the others take a gateway for dead, and its slots for free.
GATEWAY_TTL_S = 10
# Time for which the count of a window outlives its end.
COUNT_TTL_S = 10


@dataclass(slots=True)
class Increments:
    """Amounts to add exactly once, by their sequence number. counts: of limits. usage: of the ledger."""

    sequence: int
    counts: list[dict[str, Any]] = field(default_factory=list)
    usage: list[dict[str, Any]] = field(default_factory=list)

    def add_count(self, tenant: str, lease: Lease, amount: int) -> None:
        """Add to the count of a limit in its lease's window."""
        self.counts.append(
            {
                "key": _count_key(tenant, lease),
                "amount": amount,
                "expires_s": lease.window.end_s + COUNT_TTL_S,
            }
        )


@dataclass(slots=True)
class Batch:
    """A call of the store. takes, slots: wanted amounts, each with its tenant. leaves: whether it ends."""

    increments: Increments
    takes: list[tuple[str, Lease, Window, Demand]] = field(default_factory=list)
    slots: list[tuple[str, SlotLease, Demand]] = field(default_factory=list)
    leaves: bool = False

    def encode(self, gateway: str) -> bytes:
        """Write the batch as the script reads it. gateway: a name that no other process has."""
        return json.dumps(
            {
                "prefix": PREFIX,
                "gateway": gateway,
                "gateway_ttl_s": GATEWAY_TTL_S,
                "leaves": self.leaves,
                "sequence": self.increments.sequence,
                "counts": self.increments.counts,
                "usage": self.increments.usage,
                "takes": [
                    {
                        "key": _count_key(tenant, lease),
                        "limit": lease.limit.limit,
                        "start_s": window.start_s,
                        "end_s": window.end_s,
                        "expires_s": window.end_s + COUNT_TTL_S,
                        **_fields(demand),
                    }
                    for tenant, lease, window, demand in self.takes
                ],
                "slots": [
                    {
                        "key": f"running:{tenant}",
                        "limit": slots.bound,
                        "held": slots.held,
                        **_fields(demand),
                    }
                    for tenant, slots, demand in self.slots
                ],
            }
        ).encode()


@dataclass(frozen=True, slots=True)
class Reply:
    """The store's reply. now_s: its time. grants: of each take, then of each slot, with the totals."""

    now_s: float
    num_gateways: int
    is_new: bool
    grants: Sequence[tuple[int, int]]

    @classmethod
    def decode(cls, reply: Sequence[int]) -> "Reply":
        """Read the script's reply."""
        now_ms, num_gateways, is_new, *rest = reply
        grants = list(zip(rest[::2], rest[1::2], strict=True))
        return cls(now_ms / 1000, num_gateways, bool(is_new), grants)


def _count_key(tenant: str, lease: Lease) -> str:
    limit = lease.limit
    return f"used:{tenant}:{limit.name}:{limit.resource}:{limit.unit}:{lease.window.start_s}"


def _fields(demand: Demand) -> dict[str, int]:
    return {"least": demand.least, "waiting": demand.waiting, "wanted": demand.wanted}
