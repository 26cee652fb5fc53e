"""Closures of busy copies: no new request is sent to a copy until it is idle and makes room for another.

A copy that does not become idle opens again, and the next closure follows a pause that grows. So a request
that never ends keeps other requests for its adapter waiting for a bounded part of the time.
"""

from dataclasses import dataclass, replace

from penstock.core.adapters.load_failures import MAX_PAUSE_S
from penstock.core.backoff import backoff_s

# Longest closure, in seconds. Most requests end sooner. A request waits for 30 s at most: one for the closed
# adapter outlasts the closure, and one for the other adapter can try a second copy.
MAX_CLOSED_S = 10.0
# Time after which a closure ends if no request asks for it again, in seconds. Waiting requests ask every
# second.
UNASKED_S = 2.5
# First pause after a closure, in seconds. It is as long as a closure: a copy is open for half of the time at
# least. The longest is that of failed loads.
FIRST_PAUSE_S = MAX_CLOSED_S
# Time after its end for which a closure is remembered, in seconds: the longest pause, and as long again.
REMEMBERED_S = 2 * MAX_PAUSE_S


@dataclass(frozen=True, slots=True)
class Closure:
    """A closure of a copy.

    asked_s: when a request last asked for it. num_vain: closures of the copy before this one that took as
    long as they may, without making it idle.
    """

    started_s: float
    asked_s: float
    num_vain: int = 0

    @property
    def end_s(self) -> float:
        """Time at which the copy takes requests again."""
        return min(self.asked_s + UNASKED_S, self.started_s + MAX_CLOSED_S)

    def is_closed(self, now_s: float) -> bool:
        """Whether the copy takes no new requests."""
        return now_s < self.end_s

    def is_kept_open(self, now_s: float) -> bool:
        """Whether the copy is open, and not to be closed yet."""
        pause_s = backoff_s(self.num_vain, FIRST_PAUSE_S, MAX_PAUSE_S)
        return self.end_s <= now_s < self.end_s + pause_s

    def is_remembered(self, now_s: float) -> bool:
        """Whether the next closure of the copy depends on this one."""
        return now_s < self.end_s + REMEMBERED_S

    def next(self, now_s: float) -> "Closure":
        """This closure, prolonged, or a new one after it."""
        if self.is_closed(now_s):
            return replace(self, asked_s=now_s)
        is_vain = self.end_s == self.started_s + MAX_CLOSED_S
        return Closure(now_s, now_s, self.num_vain + is_vain)
