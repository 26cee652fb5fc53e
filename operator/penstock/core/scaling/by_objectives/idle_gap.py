"""Idle gap: the requests to a busy service stop abruptly.

A load that ends does so gradually. If many requests were due and none arrived, something before this service
has probably failed, and all of them will come back at once. So the demand counts as what it was, for a
fraction of the time that the load was there: a load that is gone for good costs no more than that.
"""

import math
from dataclasses import dataclass, replace

# Minimum length, s. Shorter gaps end before fewer replicas are considered.
SHORTEST_S = 45.0
# Minimum number of requests that were due: fewer may be missing by chance.
MIN_DUE_REQUESTS = 20.0
# A gap is waited out for SHARE of the time that the load was there, and for LONGEST_S at most.
SHARE, LONGEST_S = 0.25, 3600.0
# The usual rate decays by 63% in MEMORY_S. The load began when its rate reached HALF of the usual one.
MEMORY_S, HALF = 600.0, 0.5


@dataclass(frozen=True, slots=True)
class IdleGap:
    """The load before a gap.

    heard_s: last time at which a request arrived or waited; None: there was none. rate: usual requests per
    second. since_s: time since which the rate has been at least half of that. least: minimum rate since then.
    """

    heard_s: float | None = None
    rate: float = 0.0
    since_s: float = 0.0
    least: float = 0.0

    def with_interval(self, now_s: float, arrivals: int, *, is_waiting: bool) -> "IdleGap":
        """The gap with one more interval and its arrivals.

        is_waiting: whether requests wait. A client that waits may send nothing else.
        """
        if self.heard_s is None:
            return IdleGap(now_s, since_s=now_s) if arrivals else self
        if not arrivals and not is_waiting:
            return IdleGap() if self._is_significant(now_s) and not self.lasts(now_s) else self
        elapsed_s = now_s - self.heard_s
        if elapsed_s <= 0 or not arrivals or self.lasts(now_s):
            return replace(self, heard_s=now_s)
        share = 1 - math.exp(-elapsed_s / MEMORY_S)
        rate = self.rate + share * (arrivals / elapsed_s - self.rate)
        if self.least < HALF * rate:
            return IdleGap(now_s, rate, now_s, rate)
        return IdleGap(now_s, rate, self.since_s, min(self.least, rate))

    def lasts(self, now_s: float) -> bool:
        """Whether there is a gap that is still waited out."""
        return self._is_significant(now_s) and now_s < self.until_s

    @property
    def until_s(self) -> float:
        heard_s = self.heard_s or 0.0
        return heard_s + min(LONGEST_S, SHARE * (heard_s - self.since_s))

    def note(self, now_s: float) -> str:
        quiet_s = now_s - (self.heard_s or 0.0)
        return (
            f"{self.rate:.2f} requests/s came until {quiet_s:.0f} s ago, and none since: "
            f"waited for, {self.until_s - now_s:.0f} s more"
        )

    def _is_significant(self, now_s: float) -> bool:
        """Whether the gap is too long for chance."""
        if self.heard_s is None:
            return False
        quiet_s = now_s - self.heard_s
        return quiet_s >= SHORTEST_S and quiet_s * self.rate >= MIN_DUE_REQUESTS
