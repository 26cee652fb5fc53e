"""Forecast errors: how much more work arrived than the level predicted some time before.

For each horizon and headroom: the work beyond level * headroom, by the mean rate over the horizon. Only this
excess is late, because work may wait for its first token, and engines keep decoding sequences in time.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

HORIZONS_S = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
# The last one is the maximum. Headroom for a load that doubles at once would take twice the replicas all
# the time; such a load is met when it comes.
HEADROOMS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.6)
# Observations decay by 63% in this time, s.
MEMORY_S = 7200.0
# Minimum time between updates, as a fraction of the horizon: closer ones observe the same work.
STRIDE = 0.1
NOTHING = (0.0,) * len(HEADROOMS)

NEVER_S = -1.0

Row = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ForecastErrors:
    """Forecast errors at one horizon.

    came: mean rate of work. beyond: for each headroom, the part of that rate beyond it. watched_s: observed
    time. at_s: time of the last update.
    """

    came: float = 0.0
    beyond: Row = NOTHING
    watched_s: float = 0.0
    at_s: float = NEVER_S

    def is_due(self, now_s: float, horizon_s: float) -> bool:
        return now_s - self.at_s >= STRIDE * horizon_s

    def with_observation(
        self, now_s: float, elapsed_s: float, level: float, came: float
    ) -> "ForecastErrors":
        """The errors with one more observation.

        level: the predicted rate. came: the mean rate since the prediction.
        """
        weight = elapsed_s / (self.watched_s + elapsed_s)
        beyond = tuple(
            x + weight * (max(0.0, came - level * h) - x)
            for x, h in zip(self.beyond, HEADROOMS, strict=True)
        )
        mean = self.came + weight * (came - self.came)
        return ForecastErrors(mean, beyond, min(self.watched_s + elapsed_s, MEMORY_S), now_s)

    def without_time(self) -> "ForecastErrors":
        return replace(self, at_s=NEVER_S)

    def scaled(self, factor: float) -> "ForecastErrors":
        """The errors of a load that is `factor` times as large."""
        return ForecastErrors(
            factor * self.came,
            tuple(factor * x for x in self.beyond),
            self.watched_s,
            self.at_s,
        )


def smallest(share: Callable[[int], float], loss: float) -> float:
    """The headroom at which `share`, which falls with the index, reaches `loss`, by linear interpolation."""
    low, high = 0, len(HEADROOMS)
    known: dict[int, float] = {}
    while low < high:
        middle = (low + high) // 2
        known[middle] = share(middle)
        if known[middle] <= loss:
            high = middle
        else:
            low = middle + 1
    if low == 0:
        return HEADROOMS[0]
    if low == len(HEADROOMS):
        return HEADROOMS[-1]
    above, below = known[low - 1], known[low]
    part = (above - loss) / max(above - below, 1e-12)
    return HEADROOMS[low - 1] + part * (HEADROOMS[low] - HEADROOMS[low - 1])


def normal_excess(headroom: float, spread: float) -> float:
    """E[max(0, x - headroom)] of x normal around 1 (the loss function of the newsvendor)."""
    k = (headroom - 1) / spread
    density = math.exp(-k * k / 2) / math.sqrt(2 * math.pi)
    return spread * (density - k * 0.5 * math.erfc(k / math.sqrt(2)))


def index_of(horizon_s: float) -> int:
    """Index of the first horizon that is at least as long; else of the longest."""
    return next((i for i, h in enumerate(HORIZONS_S) if h >= horizon_s), len(HORIZONS_S) - 1)
