"""Clairvoyant bounds on loads (Belady) and times (no load takes time).

Loads: Belady's rule on one cache with the slots of all pods. It evicts the adapter whose next request is
furthest away, which is the fewest loads that any rule with this many slots can have, with or without
loads ahead of requests. Requests that keep a slot busy and the split into pods only make it harder.
Times: every adapter in the memory of every pod (`Everywhere`), so that only the engines' own work is left.
Both know all requests beforehand.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from penstock.sim.adapters.baselines import PodRule, least_open
from penstock.sim.adapters.pod import AdapterPod
from penstock.sim.adapters.workload import Call


class Everywhere(PodRule):
    """Least open requests, on pods with a slot for every adapter and loads that take no time."""

    def choose(self, name: str) -> AdapterPod:
        return least_open(self.pool.pods)


def fewest_loads(calls: Sequence[Call], slots: int, from_s: float) -> int:
    """Loads after from_s by Belady's rule, from an empty cache at the first call."""
    next_use = _next_uses(calls)
    cached: dict[int, int] = {}  # adapter -> index of its next call
    heap: list[tuple[int, int]] = []  # (-next call, adapter), outdated entries included
    loads = 0
    for index, call in enumerate(calls):
        if call.adapter not in cached:
            loads += call.at_s >= from_s
            while len(cached) >= slots:
                later, adapter = heappop(heap)
                if cached.get(adapter) == -later:
                    del cached[adapter]
        cached[call.adapter] = next_use[index]
        heappush(heap, (-next_use[index], call.adapter))
    return loads


def _next_uses(calls: Sequence[Call]) -> list[int]:
    """Index of the next call of the same adapter, for each call; beyond the end if there is none."""
    following: dict[int, int] = {}
    uses = [0] * len(calls)
    for index in reversed(range(len(calls))):
        uses[index] = following.get(calls[index].adapter, len(calls) + index)
        following[calls[index].adapter] = index
    return uses
