"""A busy service to which nothing comes any more, all at once.

Loads that end do so by and by; where thousands of requests were to be expected and none came, something
before this service is likelier to have failed, and all of it will come back at once. So for a while the
demand counts as what it was. For how long: for a part of the time that the load had been there, so
that one which is gone for good has cost no more than that part.
"""

import math
from dataclasses import dataclass, replace

# Shorter ones are gone before a smaller number is thought of.
SHORTEST_S = 45.0
# So many requests that were due do not stay away by chance.
DUE = 20.0
# A silence is waited out for that part of the time that the load was there, and for no longer than an hour.
SHARE, LONGEST_S = 0.25, 3600.0
# The usual rate is forgotten by 63% in this time; a load is there since it was at least half of it.
MEMORY_S, HALF = 600.0, 0.5


@dataclass(frozen=True, slots=True)
class Silence:
    """heard_s: when a request came last, or one was waiting; None: there was none. rate: of requests, the
    usual one. since_s: since when it has been half of that, and least what it was then or since."""

    heard_s: float | None = None
    rate: float = 0.0
    since_s: float = 0.0
    least: float = 0.0

    def after(self, now_s: float, arrivals: int, *, is_waiting: bool) -> "Silence":
        """arrivals: since the last look. is_waiting: whoever waits may ask for nothing else."""
        if self.heard_s is None:
            return Silence(now_s, since_s=now_s) if arrivals else self
        if not arrivals and not is_waiting:
            return Silence() if self._is_told(now_s) and not self.lasts(now_s) else self
        elapsed_s = now_s - self.heard_s
        if elapsed_s <= 0 or not arrivals or self.lasts(now_s):
            return replace(self, heard_s=now_s)
        share = 1 - math.exp(-elapsed_s / MEMORY_S)
        rate = self.rate + share * (arrivals / elapsed_s - self.rate)
        if self.least < HALF * rate:
            return Silence(now_s, rate, now_s, rate)
        return Silence(now_s, rate, self.since_s, min(self.least, rate))

    def lasts(self, now_s: float) -> bool:
        """Whether it is silent, and what came before is still waited for."""
        return self._is_told(now_s) and now_s < self.until_s

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

    def _is_told(self, now_s: float) -> bool:
        """From a pause by chance."""
        if self.heard_s is None:
            return False
        quiet_s = now_s - self.heard_s
        return quiet_s >= SHORTEST_S and quiet_s * self.rate >= DUE
