"""Simulated time with an event queue. Events of the same time run in the order of their scheduling."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serials = count()

    def schedule_at(self, when: float, event: Callable[[], None]) -> None:
        """Schedule `event` at time `when`, at the earliest now."""
        heappush(self._events, (max(when, self.now), next(self._serials), event))

    def run(self, until: float) -> None:
        """Run all events up to `until` and set the time to `until`."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, event = heappop(events)
            event()
        self.now = until
