"""Requests of a class that wait for the same engines, by tenant."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.admission.deadline_queue import DeadlineQueue
from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.core.admission.fair_shares import FairShares
from penstock.core.admission.turns import Turns


@dataclass(frozen=True, slots=True)
class Head:
    """The first request of a lane. rank: orders it among those of other lanes."""

    rank: tuple[float, ...]
    waiting: Waiting


@dataclass(frozen=True, slots=True)
class LaneSearch:
    """Inputs of a search for the next request.

    is_late: the requests that cannot be in time any more, or the others. latest_s: the time that a deadline
    may not be before, without the prefill; None: no request is late. serials: orders the late ones.
    """

    is_late: bool
    latest_s: float | None
    serials: Iterator[int]
    now: float


class Lane:
    """The waiting requests of a class for one adapter, or for the base model.

    all_waiting: all requests of the queue by id. num_waiting: those of the lane.
    """

    def __init__(self, all_waiting: Mapping[str, Waiting], shares: FairShares) -> None:
        self._all_waiting = all_waiting
        self._queues: dict[str, DeadlineQueue] = {}
        # Tenants with requests that may be in time, and those with others
        self._able, self._late = Turns(shares.virtual_time), Turns(shares.virtual_time)
        self.num_waiting = 0

    def __iter__(self) -> Iterator[Waiting]:
        for queue in self._queues.values():
            for waiting in (*(each[2] for each in queue.able), *(each[1] for each in queue.late)):
                if waiting.request_id in self._all_waiting:
                    yield waiting

    def add(self, waiting: Waiting, serial: int) -> None:
        """Enqueue a request. serial: orders requests with the same deadline."""
        tenant = waiting.requester.tenant
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = DeadlineQueue(self._all_waiting)
        queue.add(waiting, serial)
        queue.num_waiting += 1
        self.num_waiting += 1
        self._able.add(tenant)

    def remove(self, waiting: Waiting) -> None:
        """Count a request as removed; its queue skips it later."""
        tenant = waiting.requester.tenant
        queue = self._queues[tenant]
        queue.num_waiting -= 1
        self.num_waiting -= 1
        if not queue.num_waiting:
            del self._queues[tenant]

    def first(self, search: LaneSearch, engines: Sequence[EngineLoad]) -> Head | None:
        """The first request of the first tenant that has one. engines: that may take it."""
        turns = self._turns(search)
        while first := turns.first():
            time, tenant = first
            if (queue := self._queues.get(tenant)) is not None:
                if not search.is_late:
                    self._move_late(tenant, queue, search, engines)
                if head := queue.first_late() if search.is_late else queue.first_able():
                    *rank, waiting = head
                    return Head((time, *rank), waiting)
            turns.remove_first()
        return None

    def pass_first(self, search: LaneSearch) -> None:
        """Leave the first tenant out of the search until `restore`."""
        self._turns(search).pass_first()

    def restore(self, search: LaneSearch) -> None:
        """End a search."""
        self._turns(search).restore()

    def requeue_late(self, serials: Iterator[int]) -> None:
        """Queue late requests by deadline again."""
        for tenant, queue in self._queues.items():
            if queue.late:
                queue.requeue_late(serials)
                self._able.add(tenant)

    def _turns(self, search: LaneSearch) -> Turns:
        return self._late if search.is_late else self._able

    def _move_late(
        self, tenant: str, queue: DeadlineQueue, search: LaneSearch, engines: Sequence[EngineLoad]
    ) -> None:
        if search.latest_s is None or not engines:
            return
        queue.move_late(engines, search.latest_s, search.serials, search.now)
        if queue.late:
            self._late.add(tenant)
