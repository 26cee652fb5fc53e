"""Correction of the need by late requests that the load does not explain (integral control).

The capacity of a replica comes from a model, which may stay wrong: about a few large sequences that fill one
replica's KV cache, for example. Then requests are late though the load is within the replicas. Each step
follows a window without that explanation, which lasts at least a start-up, the dead time of the loop. So a
constant error of the capacity up to MOST_CORRECTION is corrected in the end, and a burst, which is a load
beyond the replicas, corrects nothing.
"""

import math
from dataclasses import dataclass, replace

from penstock.core.scaling.by_objectives.outcomes import Outcomes

# Least window in seconds, and the time for which the load must be within the replicas before it begins: late
# requests of a burst end so long after it.
MIN_WINDOW_S = 60.0
# Late requests of a window that are chance: so few say nothing about a rate, and twice the allowed fraction
# is within the spread of a window of a hundred requests.
MIN_LATE, LATE_BY_CHANCE = 5.0, 2.0
# Largest step of a window as a fraction of the need, so that the loop does not overshoot.
MAX_STEP = 0.25
# Largest correction, as a multiple of the need: the price of lateness that has another cause.
MOST_CORRECTION = 2.0
# The correction fades by 63% in this time. If it is still needed, late requests bring it back.
FADING_S = 3600.0


@dataclass(frozen=True, slots=True)
class Correction:
    """Correction, and the open window.

    factor: multiple of the need. explained_s: last time at which the load explained late requests. begin_s:
    start of the window. requests, late: ended in it. at_s: time of the last update. Times are 0 before the
    first one.
    """

    factor: float = 1.0
    explained_s: float = 0.0
    begin_s: float = 0.0
    requests: float = 0.0
    late: float = 0.0
    at_s: float = 0.0

    def updated(
        self, now_s: float, ended: Outcomes, *, is_explained: bool, window_s: float, allowed: float
    ) -> "Correction":
        """Add the requests that ended since the last update, and close the window if it is over.

        is_explained: whether too few replicas are ready for the load. window_s: length of the window, if that
        is more than MIN_WINDOW_S. allowed: fraction of requests that may be late.
        """
        elapsed_s = now_s - self.at_s if self.at_s else 0.0
        factor = 1 + (self.factor - 1) * math.exp(-elapsed_s / FADING_S)
        if is_explained:
            return Correction(factor, explained_s=now_s, at_s=now_s)
        begin_s = max(self.begin_s, self.explained_s + MIN_WINDOW_S)
        if now_s <= begin_s:
            return replace(self, factor=factor, at_s=now_s)
        requests, late = self.requests + ended.requests, self.late + ended.late
        if now_s - begin_s < max(MIN_WINDOW_S, window_s):
            return Correction(factor, self.explained_s, begin_s, requests, late, now_s)
        share = late / max(1.0, requests)
        if late >= MIN_LATE and share > LATE_BY_CHANCE * allowed:
            factor = min(MOST_CORRECTION, factor * (1 + min(MAX_STEP, share)))
        return Correction(factor, self.explained_s, begin_s=now_s, at_s=now_s)
