"""Clairvoyant bounds on loads (Belady) and times (no load takes time).

Loads: Belady's rule on one cache with the slots of all pods. It evicts the adapter whose next request is
furthest away, which is the fewest loads that any rule with this many slots can have, with or without
loads ahead of requests. Requests that keep a slot busy and the split into pods only make it harder.
Times: every adapter in the memory of every pod, so that only the engines' own work is left.
Both know all requests beforehand.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from penstock.sim.adapters.scenario import Adapters
from penstock.sim.request import Request


def without_loads(adapters: Adapters) -> Adapters:
    """The same engines with a slot for every adapter, and loads that take no time."""
    return adapters.model_copy(update={"slots": adapters.total, "load_s": (0.0, 0.0)})


def fewest_loads(requests: Sequence[Request], slots: int, from_s: float) -> int:
    """Loads after from_s by Belady's rule, from an empty cache at the first request."""
    next_use = _next_uses(requests)
    cached: dict[str, int] = {}  # adapter -> index of its next request
    heap: list[tuple[int, str]] = []  # (-next request, adapter), outdated entries included
    loads = 0
    for index, request in enumerate(requests):
        if request.adapter not in cached:
            loads += request.arrival_s >= from_s
            while len(cached) >= slots:
                later, adapter = heappop(heap)
                if cached.get(adapter) == -later:
                    del cached[adapter]
        cached[request.adapter] = next_use[index]
        heappush(heap, (-next_use[index], request.adapter))
    return loads


def _next_uses(requests: Sequence[Request]) -> list[int]:
    """Index of the next request for the same adapter, for each; beyond the end if there is none."""
    following: dict[str, int] = {}
    uses = [0] * len(requests)
    for index in reversed(range(len(requests))):
        adapter = requests[index].adapter
        uses[index] = following.get(adapter, len(requests) + index)
        following[adapter] = index
    return uses
