"""Drain of a busy copy: it gets no new requests until it is idle or ten seconds have passed.

An idle copy makes room for another adapter. One that does not become idle takes requests again, and its
next drain follows a pause that grows. So a request that never ends keeps other requests for its adapter
waiting for a bounded part of the time.
"""

from dataclasses import dataclass, replace

from penstock.core.adapters.load_failures import MAX_PAUSE_S
from penstock.core.backoff import backoff_s

# Longest drain, in seconds. Most requests end sooner. A request waits for 30 s at most: one for the draining
# adapter outlasts the drain, and one for the other adapter can try a second copy.
MAX_DRAIN_S = 10.0
# Time after which a drain ends if no request asks for it again, in seconds. Waiting requests ask every
# second.
UNASKED_S = 2.5
# First pause after a drain, in seconds. It is as long as a drain: a copy takes requests for half of the time
# at least. The longest is that of failed loads.
FIRST_PAUSE_S = MAX_DRAIN_S
# Time after its end for which a drain is remembered, in seconds: the longest pause, and as long again.
REMEMBERED_S = 2 * MAX_PAUSE_S


@dataclass(frozen=True, slots=True)
class Drain:
    """A drain of a copy.

    asked_s: when a request last asked for it. num_timed_out: drains of the copy before this one that took as
    long as they may, without making it idle.
    """

    started_s: float
    asked_s: float
    num_timed_out: int = 0

    @property
    def end_s(self) -> float:
        """Time at which the copy takes requests again."""
        return min(self.asked_s + UNASKED_S, self.started_s + MAX_DRAIN_S)

    def is_draining(self, now_s: float) -> bool:
        """Whether the copy takes no new requests."""
        return now_s < self.end_s

    def is_backing_off(self, now_s: float) -> bool:
        """Whether the drain is over, and the copy not to be drained again yet."""
        pause_s = backoff_s(self.num_timed_out, FIRST_PAUSE_S, MAX_PAUSE_S)
        return self.end_s <= now_s < self.end_s + pause_s

    def is_remembered(self, now_s: float) -> bool:
        """Whether the next drain of the copy depends on this one."""
        return now_s < self.end_s + REMEMBERED_S

    def next(self, now_s: float) -> "Drain":
        """Return the drain after another request for it: this one, or a new one if this one has ended."""
        if self.is_draining(now_s):
            return replace(self, asked_s=now_s)
        has_timed_out = self.end_s == self.started_s + MAX_DRAIN_S
        return Drain(now_s, now_s, self.num_timed_out + has_timed_out)
