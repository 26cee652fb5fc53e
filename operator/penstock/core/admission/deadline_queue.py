"""Requests of a tenant that wait for the same engines, in the order of their deadlines."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush

from penstock.core.admission.engine_load import EngineLoad, Waiting


class DeadlineQueue:
    """The waiting requests of one tenant for one adapter, or for the base model.

    waiting: all requests of the queue by id; what is no longer in it is skipped. late: requests that can
    no longer be in time, in the order in which that was found. num_waiting: those that are not skipped.
    """

    def __init__(self, waiting: Mapping[str, Waiting]) -> None:
        self._waiting = waiting
        self.able: list[tuple[float, int, Waiting]] = []  # heap by deadline
        self.late: deque[tuple[int, Waiting]] = deque()
        self.num_waiting = 0

    def add(self, waiting: Waiting, serial: int) -> None:
        """Enqueue a request. serial: orders requests with the same deadline."""
        heappush(self.able, (waiting.deadline_s, serial, waiting))

    def first_able(self) -> tuple[float, int, Waiting] | None:
        """The request with the earliest deadline, after its deadline and serial."""
        while self.able and self.able[0][2].request_id not in self._waiting:
            heappop(self.able)
        return self.able[0] if self.able else None

    def first_late(self) -> tuple[int, Waiting] | None:
        """The first late request, after its serial."""
        while self.late and self.late[0][1].request_id not in self._waiting:
            self.late.popleft()
        return self.late[0] if self.late else None

    def move_late(
        self,
        engines: Iterable[EngineLoad],
        latest_s: float,
        serials: Iterator[int],
        now: float,
    ) -> None:
        """Move the first requests to the late ones until one can still be in time.

        latest_s: the time that its deadline may not be before, without its prefill.
        """
        while (head := self.first_able()) is not None:
            deadline_s, _, waiting = head
            if is_in_time(engines, waiting, deadline_s - latest_s, now):
                return
            heappop(self.able)
            self.late.append((next(serials), waiting))

    def requeue_late(self, serials: Iterable[int]) -> None:
        """Queue late requests by deadline again."""
        late, self.late = self.late, deque()
        for (_, waiting), serial in zip(late, serials, strict=False):
            heappush(self.able, (waiting.deadline_s, serial, waiting))


def is_in_time(
    engines: Iterable[EngineLoad], waiting: Waiting, within_s: float, now: float
) -> bool:
    """Whether some engine would give the first token in time, if its KV cache had room."""
    return any(
        engine.ttft_s(waiting.uncached_tokens(engine.pod), now) <= within_s for engine in engines
    )
