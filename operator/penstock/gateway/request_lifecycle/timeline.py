"""The phases of one request, with their times."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class RequestPhase(StrEnum):
    """Phase of a request.

    receive: its body arrives. route: it is read and a service is found. wait: for an endpoint with
    room. connect: to the endpoint. first_byte: the endpoint computes. stream: its response is passed on.
    A retry waits and connects again. A CancellationScope counts `route` as wait, and `connect` as first_byte:
    they have no time limits of their own.
    """

    RECEIVE = "receive"
    ROUTE = "route"
    WAIT = "wait"
    CONNECT = "connect"
    FIRST_BYTE = "first_byte"
    STREAM = "stream"


class Interval(NamedTuple):
    """Start and end of a phase, on the monotonic clock."""

    phase: RequestPhase
    start_s: float
    end_s: float


class Timeline:
    """Phases of one request. Each starts when the one before ends, so that they add up to the whole.

    now: the monotonic clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._starts = [(RequestPhase.RECEIVE, now())]

    @property
    def started_s(self) -> float:
        """Time at which the head of the request was read."""
        return self._starts[0][1]

    def enter(self, phase: RequestPhase) -> float:
        """Start a phase. Returns the time."""
        now_s = self._now()
        self._starts.append((phase, now_s))
        return now_s

    def intervals(self, end_s: float) -> list[Interval]:
        """The phases so far; the last one ends at end_s."""
        ends_s = [start_s for _, start_s in self._starts[1:]] + [end_s]
        return [Interval(*each, end) for each, end in zip(self._starts, ends_s, strict=True)]


def seconds_by_phase(intervals: list[Interval]) -> dict[RequestPhase, float]:
    """Seconds of each phase, all attempts together. Phases that were not reached are absent."""
    total: dict[RequestPhase, float] = {}
    for phase, start_s, end_s in intervals:
        total[phase] = total.get(phase, 0.0) + end_s - start_s
    return total
