"""The waiting requests of one priority: fair shares among tenants, then deadlines."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from penstock.core.admission.decision import Admit
from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.core.admission.fair_shares import FairShares
from penstock.core.admission.lane import Lane, LaneSearch
from penstock.core.admission.room import Fit

# Number of tenants beyond their share that a search passes. It bounds the work of the search: with more of
# them, hardly any other tenant is below its share.
MAX_PASSED = 16

# Engines by adapter that may take requests for it.
Usable = Mapping[str, Sequence[EngineLoad]]
FindFit = Callable[[Iterable[EngineLoad], Waiting], Fit]


class PriorityClass:
    """Queue of one class. Requests for an adapter wait in a lane of their own, for the engines that have it.

    all_waiting: all requests of all classes by id. last_arrival_s: of a request of the class.
    """

    def __init__(self, priority: int, all_waiting: Mapping[str, Waiting]) -> None:
        self.priority = priority
        self.shares = FairShares()
        self.lanes: dict[str, Lane] = {}
        self.last_arrival_s = float("-inf")
        self._all_waiting = all_waiting

    def __len__(self) -> int:
        return self.shares.num_waiting

    def add(self, waiting: Waiting, serial: int, now: float) -> None:
        """Enqueue a request. serial: orders requests with the same deadline."""
        lane = self.lanes.get(waiting.adapter)
        if lane is None:
            lane = self.lanes[waiting.adapter] = Lane(self._all_waiting, self.shares)
        self.shares.add(waiting, now)
        lane.add(waiting, serial)

    def remove(self, waiting: Waiting) -> None:
        """Remove a request."""
        self.shares.remove(waiting)
        lane = self.lanes[waiting.adapter]
        lane.remove(waiting)
        if not lane.num_waiting:
            del self.lanes[waiting.adapter]

    def requeue_late(self, serials: Iterator[int]) -> None:
        """Queue late requests by deadline again."""
        for lane in self.lanes.values():
            lane.requeue_late(serials)

    def check(self) -> None:
        """Assert that lanes and shares have the same requests."""
        assert self.shares.num_waiting == sum(lane.num_waiting for lane in self.lanes.values())
        for lane in self.lanes.values():
            assert lane.num_waiting == len(list(lane)) > 0
        self.shares.check()

    def first(
        self, search: LaneSearch, usable: Usable, kept: set[str], find_fit: FindFit
    ) -> Admit | None:
        """Find the first request that fits an engine, over all lanes.

        A request that fits none keeps the engines that it waits for: their pods are added to `kept`, and
        those behind it may only have others. One beyond its tenant's share keeps them only from searches
        that follow.
        """
        try:
            return self._first(search, usable, kept, find_fit)
        finally:
            for lane in self.lanes.values():
                lane.restore(search)

    def _first(
        self, search: LaneSearch, usable: Usable, kept: set[str], find_fit: FindFit
    ) -> Admit | None:
        heads: list[tuple[tuple[float, ...], str, Waiting]] = []  # heap

        def add_head(name: str) -> None:
            if head := self.lanes[name].first(search, usable[name]):
                heappush(heads, (head.rank, name, head.waiting))

        for name in self.lanes:
            add_head(name)
        passed: list[str] = []
        while heads:
            _, name, waiting = heappop(heads)
            fit = find_fit(_exclude(usable[name], kept), waiting)
            if fit.engines:
                return Admit(waiting, fit.engines)
            if fit.is_beyond_share and len(passed) < MAX_PASSED:
                passed.append(name)
                self.lanes[name].pass_first(search)
                add_head(name)
            else:
                _keep(usable[name], kept)
        for name in passed:
            _keep(usable[name], kept)
        return None


def _keep(engines: Iterable[EngineLoad], kept: set[str]) -> None:
    kept.update(engine.pod for engine in engines)


def _exclude(engines: Sequence[EngineLoad], pods: set[str]) -> Sequence[EngineLoad]:
    return [engine for engine in engines if engine.pod not in pods] if pods else engines
