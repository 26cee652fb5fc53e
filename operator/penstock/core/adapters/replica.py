"""The adapters of an engine pod, as the engine reports them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# Resident: in memory. Loading: a load was sent and not answered. Evicted: the engine knows the adapter, but
# reads it from disk again before the next request.
CopyState = Literal["Resident", "Loading", "Evicted"]


@dataclass(frozen=True, slots=True)
class Copy:
    """An adapter on one pod. requests: running and waiting there. size_bytes: 0 if unknown."""

    state: CopyState
    requests: int = 0
    rank: int | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterReplica:
    """An engine pod that takes adapters.

    Operator, gateway and simulator each make it, and have to say all that a rule may ask for.
    """

    pod: str  # name of the pod
    slots: int  # most adapters in its memory at once
    # Copies by the adapter's name in engines, including those without a LoraAdapter
    copies: Mapping[str, Copy]
    load: float  # work in flight relative to the other pods, such as tokens or requests
    loads_at_once: int  # adapters that the engine reads at the same time
    # Revision and cohort; in a rollout of the service each side has requests of its own
    side: str
    # Names of copies that take no new requests, to make room for another adapter
    draining_copies: frozenset[str]
    # Names of copies that are not drained yet, as they were drained lately
    backing_off_copies: frozenset[str]
