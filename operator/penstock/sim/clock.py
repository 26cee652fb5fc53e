"""The simulated time: what happens next, in order. Events of the same moment keep their order."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serials = count()

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Calls `event` at `when`, or now if that is past."""
        heappush(self._events, (max(when, self.now), next(self._serials), event))

    def run(self, until: float) -> None:
        """All events up to `until`, which is the time afterwards."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, event = heappop(events)
            event()
        self.now = until
