"""Counts and eviction orders of a service's copies, kept from one choice of a pod to the next.

A service may have a hundred engines with a thousand copies each. A choice passes only over the copies of pods
that have changed since the last one.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import NO_DEMAND, AdapterDemand
from penstock.core.adapters.replica import AdapterReplica, Copy
from penstock.core.adapters.retention import Claim, claim, may_evict

_Demand = Mapping[str, AdapterDemand]
_Versions = Mapping[str, AdapterVersion]


class PodCopies:
    """Copies of a pod by what they do, as names in engines.

    in_slots: those that take a slot. resident: in memory. idle: in memory, without requests.
    """

    def __init__(self, copies: Mapping[str, Copy]) -> None:
        self.copies = copies
        self.in_slots = frozenset(n for n, copy in copies.items() if copy.state != "Evicted")
        self.resident = frozenset(n for n in self.in_slots if copies[n].state == "Resident")
        self.idle = frozenset(n for n in self.resident if not copies[n].requests)
        self.num_loading = len(self.in_slots) - len(self.resident)


_NO_COPIES = PodCopies({})


@dataclass(frozen=True, slots=True)
class _Order:
    """Copies of a pod that may be evicted, those worth least first.

    falls: (priority negated, index) of each copy whose priority is below that of all before it.
    """

    copies: PodCopies
    names: tuple[str, ...]
    falls: tuple[tuple[int, int], ...] = ()


class EvictionOrder:
    """The adapters of which a copy may be evicted, those worth least first.

    They are known, and `may_evict` allows it. claims: what one of their copies is worth, by name in engines.
    """

    def __init__(
        self, versions: _Versions, demand: _Demand, num_copies: Mapping[str, int], num_pods: int
    ) -> None:
        self.claims: Mapping[str, Claim] = {
            name: claim(version, demand.get(name, NO_DEMAND), num_copies[name])
            for name, version in versions.items()
            if may_evict(version, num_copies.get(name, 0), num_pods)
        }
        self._versions = versions
        self._names = sorted(self.claims, key=self.rank)
        self._idle: dict[str, _Order] = {}  # by pod
        self._resident: dict[str, _Order] = {}

    def rank(self, name: str) -> tuple[Claim, str]:
        """Return the sort key of an adapter."""
        return self.claims[name], name

    def idle(self, pod: str, copies: PodCopies) -> tuple[str, ...]:
        """Return the idle copies of a pod that may be evicted, in order."""
        order = self._idle.get(pod)
        if order is None or order.copies is not copies:
            names = tuple(name for name in self._names if name in copies.idle)
            order = self._idle[pod] = _Order(copies, names)
        return order.names

    def resident(self, pod: str, copies: PodCopies, max_priority: int) -> Iterator[str]:
        """Yield the copies of a pod that may be evicted once they are idle, in order.

        max_priority: the highest priority of their adapters. The first copy is found without a pass over all.
        """
        order = self._resident.get(pod)
        if order is None or order.copies is not copies:
            order = self._resident[pod] = self._resident_order(copies)
        found = bisect_left(order.falls, (-max_priority, 0))
        start = order.falls[found][1] if found < len(order.falls) else len(order.names)
        for index in range(start, len(order.names)):
            name = order.names[index]
            if self._priority(name) <= max_priority:
                yield name

    def _resident_order(self, copies: PodCopies) -> _Order:
        names = tuple(name for name in self._names if name in copies.resident)
        falls: list[tuple[int, int]] = []
        for index, name in enumerate(names):
            if not falls or -self._priority(name) > falls[-1][0]:
                falls.append((-self._priority(name), index))
        return _Order(copies, names, tuple(falls))

    def _priority(self, name: str) -> int:
        return self._versions[name].placement.priority


@dataclass(frozen=True, slots=True)
class _KeptOrder:
    """An eviction order, with what it was made of."""

    made_of: tuple[_Versions, _Demand, int]
    order: EvictionOrder


class ServiceCopies:
    """The copies of one service.

    pods: by pod; those that are draining are left out. num_copies: on these pods, in memory or loading, by
    name in engines. Copies of a pod are taken as unchanged if they are the same object.
    """

    def __init__(self) -> None:
        self.pods: dict[str, PodCopies] = {}
        self.num_copies: Counter[str] = Counter()
        self._orders: dict[str, _KeptOrder] = {}

    def update(self, replicas: Sequence[AdapterReplica]) -> None:
        """Follow the copies of all pods of the service."""
        before = self.pods
        self.pods = {r.pod: self._count(r) for r in replicas}
        changed: set[str] = set()
        for pod in before.keys() | self.pods.keys():
            was, now = before.get(pod, _NO_COPIES), self.pods.get(pod, _NO_COPIES)
            if was is not now:
                self.num_copies.update(now.in_slots - was.in_slots)
                self.num_copies.subtract(was.in_slots - now.in_slots)
                changed |= was.in_slots ^ now.in_slots
        for name in changed:
            if not self.num_copies[name]:
                del self.num_copies[name]
        self._orders = {
            purpose: kept
            for purpose, kept in self._orders.items()
            if kept.made_of[0].keys().isdisjoint(changed)
        }

    def order(
        self, purpose: str, versions: _Versions, demand: _Demand, num_pods: int
    ) -> EvictionOrder:
        """Return the adapters in the order of eviction. purpose: one for each kind of demand."""
        made_of, kept = (versions, demand, num_pods), self._orders.get(purpose)
        if kept is None or kept.made_of != made_of:
            order = EvictionOrder(versions, demand, self.num_copies, num_pods)
            kept = self._orders[purpose] = _KeptOrder(made_of, order)
        return kept.order

    def _count(self, replica: AdapterReplica) -> PodCopies:
        known = self.pods.get(replica.pod)
        if known is not None and known.copies is replica.copies:
            return known
        return PodCopies(replica.copies)
