"""A call of the shared store, and its reply."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.core.tenants.lease import NO_DEMAND, Demand, Lease
from penstock.core.tenants.limits import Window
from penstock.core.tenants.slots import SlotLease

# Beginning of all keys in the store.
PREFIX = "penstock:"
# Time without a call after which the others take a gateway for dead, and its slots for free.
GATEWAY_TTL_S = 10
# Time for which the count of a window outlives its end.
COUNT_TTL_S = 10
# Longest time between two calls of any gateways while the store is up, half as long again as of one.
MAX_GAP_S = 0.75
# Longest time after such a gap in which gateways keep to their shares until all have stated what they have
# used, and time that all need to hear that all have.
MAX_SETTLE_S, SETTLE_S = 10.0, 0.25
# Grants of an entry whose window is not the present one, and of one whose key holds something else.
OTHER_WINDOW, UNREADABLE = -1, -2


@dataclass(slots=True)
class Increments:
    """Amounts to add to the ledger exactly once, by their sequence number."""

    sequence: int
    usage: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CountEntry:
    """A gateway's part of a limit's window, and how much more it wants. is_final: its last statement."""

    tenant: str
    lease: Lease
    window: Window
    held: int
    demand: Demand = NO_DEMAND
    is_final: bool = False

    def fields(self) -> dict[str, Any]:
        """Its form in a call."""
        return {
            "key": count_key(self.tenant, self.lease),
            "limit": self.lease.limit.limit,
            "held": self.held,
            "start_s": self.window.start_s,
            "end_s": self.window.end_s,
            "expires_s": self.window.end_s + COUNT_TTL_S,
            "is_final": self.is_final,
            **_fields(self.demand),
        }


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller and the number of the call, which is higher than those of all its calls before.

    gateway: a name that no other process has. answered: number of its last call with an answer. since_s: time
    of the store after which changes are of interest. outage_ms: end of the store's last outage, as this
    gateway knows it: a call made before the end of a later outage does not count as its first after it.
    """

    gateway: str
    number: int
    answered: int
    since_s: float
    outage_ms: int


@dataclass(slots=True)
class StoreCall:
    """The content of a call.

    slots: wanted ones, each with its tenant and what is held. num_gateways: that share limits, as far as this
    one knows. was_down: whether it has had to do without the store since its last call. leaves: whether it
    ends.
    """

    increments: Increments
    counts: list[CountEntry] = field(default_factory=list)
    slots: list[tuple[str, SlotLease, int, Demand]] = field(default_factory=list)
    num_gateways: int = 1
    was_down: bool = False
    leaves: bool = False

    def encode(self, caller: Caller) -> bytes:
        """Write the call as the script reads it."""
        return json.dumps(
            {
                "prefix": PREFIX,
                "gateway": caller.gateway,
                "number": caller.number,
                "answered_call": caller.answered,
                "since_s": caller.since_s,
                "outage_ms": caller.outage_ms,
                "gateway_ttl_s": GATEWAY_TTL_S,
                "max_gap_s": MAX_GAP_S,
                "max_settle_s": MAX_SETTLE_S,
                "settle_s": SETTLE_S,
                "num_gateways": self.num_gateways,
                "leaves": self.leaves,
                "was_down": self.was_down,
                "usage_sequence": self.increments.sequence,
                "usage": self.increments.usage,
                "counts": [each.fields() for each in self.counts],
                "slots": [
                    {
                        "key": slots_key(tenant),
                        "limit": slots.bound,
                        "held": held,
                        **_fields(demand),
                    }
                    for tenant, slots, held, demand in self.slots
                ],
            }
        ).encode()


@dataclass(frozen=True, slots=True)
class Reply:
    """The store's reply."""

    now_s: float  # its time
    num_gateways: int
    has_lost: bool = False  # whether it lacks what it has answered before
    outage_ms: int = 0  # the end of the last time that it was down
    # When gateways may take from it, which is later for a while after it was down
    shared_from_s: float = 0.0
    grants: Sequence[tuple[int, int]] = ()  # of each count, then of all slots, with the totals
    failed_usage: Sequence[int] = ()  # positions of increments that it could not add
    # Counts over all gateways, by key, of those that have changed.
    totals: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def decode(cls, reply: Sequence[Any]) -> "Reply":
        """Read the script's reply. Raises ValueError."""
        now_ms, num_gateways, has_lost, outage_ms, shared_from_ms, grants, failed, totals = reply
        return cls(
            now_ms / 1000,
            num_gateways,
            bool(has_lost),
            outage_ms,
            shared_from_ms / 1000,
            list(zip(grants[::2], grants[1::2], strict=True)),
            failed,
            {key: int(total) for key, total in zip(totals[::2], totals[1::2], strict=True)},
        )


def count_key(tenant: str, lease: Lease) -> str:
    """The key of a limit's count in the lease's window, of which the end is the last part."""
    limit = lease.limit
    return f"count:{tenant}:{limit.name}:{limit.resource}:{limit.unit}:{lease.window.end_s}"


def slots_key(tenant: str) -> str:
    """The key of a tenant's running requests."""
    return f"running:{tenant}"


def _fields(demand: Demand) -> dict[str, int]:
    return {"least": demand.least, "waiting": demand.waiting, "wanted": demand.wanted}
