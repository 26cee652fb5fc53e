"""How much work arrives, and how far it may exceed what the last minutes show.

Work is in seconds of engine time, so a rate of work is a number of engines. The level is the mean
over the longest recent window in which nothing changed; what it missed so far, at each horizon,
is the risk of relying on it again. Neither trend nor season: on public traces both lose to the last
value for horizons below an hour (Penstock's benchmarks repeat that comparison).
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

HORIZONS_S = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
SHORTEST_WINDOW_S = 10.0
LONGEST_WINDOW_S = 640.0
# Two neighbouring windows differ when their rates are so many standard deviations apart.
CHANGE_Z = 3.0
# What is remembered of misses fades by 63% in this time.
MEMORY_S = 3600.0
# Arrivals like Poisson's, with sizes that vary as much as their mean: the belief before any data,
# and as much of it as so many seconds of data.
PRIOR_DISPERSION = 2.0
PRIOR_S = 600.0


@dataclass(frozen=True, slots=True)
class Moment:
    """work_s: of all that arrived until at_s. level: the rate that was believed then."""

    at_s: float
    work_s: float
    level: float


@dataclass(frozen=True, slots=True)
class Demand:
    """dispersion: for each horizon, the mean square of what arrived beyond the level, over what
    arrivals one by one would give: level * horizon * the mean work of one."""

    history: tuple[Moment, ...] = ()
    dispersion: tuple[float, ...] = field(default=(PRIOR_DISPERSION,) * len(HORIZONS_S))
    watched_s: float = 0.0

    @property
    def level(self) -> float:
        return self.history[-1].level if self.history else 0.0

    def after(self, now_s: float, work_s: float, request_s: float) -> "Demand":
        """work_s: that arrived since the last look. request_s: the mean work of a request."""
        if not self.history:
            return Demand((Moment(now_s, 0.0, 0.0),))
        last = self.history[-1]
        total = last.work_s + work_s
        history = (*self._kept(now_s), Moment(now_s, total, 0.0))
        level = _level(history, request_s, self.dispersion[1])
        history = (*history[:-1], Moment(now_s, total, level))
        elapsed_s = now_s - last.at_s
        watched_s = min(self.watched_s + elapsed_s, MEMORY_S)
        weight = elapsed_s / (PRIOR_S + watched_s)
        dispersion = tuple(
            old + weight * (miss - old)
            for old, miss in zip(self.dispersion, _misses(history, request_s), strict=True)
        )
        return Demand(history, dispersion, watched_s)

    def most_s(self, horizon_s: float, z: float, request_s: float) -> float:
        """Work of the next horizon_s that is exceeded only z deviations beyond the level."""
        spread = math.sqrt(self._dispersion(horizon_s) * self.level * horizon_s * request_s)
        return self.level * horizon_s + z * spread

    def _dispersion(self, horizon_s: float) -> float:
        for horizon, value in zip(HORIZONS_S, self.dispersion, strict=True):
            if horizon >= horizon_s:
                return value
        return self.dispersion[-1]

    def _kept(self, now_s: float) -> tuple[Moment, ...]:
        """As far back as the longest window and horizon need, in steps of a few dozen at a time."""
        oldest_s = now_s - LONGEST_WINDOW_S
        if self.history[0].at_s > oldest_s - 120:
            return self.history
        return self.history[bisect_right(self.history, oldest_s, key=lambda m: m.at_s) - 1 :]


def _at(history: tuple[Moment, ...], at_s: float) -> Moment:
    """The last moment not after at_s, or the first."""
    return history[max(0, bisect_right(history, at_s, key=lambda m: m.at_s) - 1)]


def _level(history: tuple[Moment, ...], request_s: float, dispersion: float) -> float:
    """The mean rate since the last change: windows double while the older half is alike."""
    now = history[-1]
    level, window_s = 0.0, SHORTEST_WINDOW_S
    newer = _at(history, now.at_s - window_s)
    taken_s = now.at_s - newer.at_s
    if taken_s <= 0:
        return 0.0
    level = (now.work_s - newer.work_s) / taken_s
    while window_s < LONGEST_WINDOW_S:
        window_s *= 2
        older = _at(history, now.at_s - window_s)
        older_s = newer.at_s - older.at_s
        if older_s <= 0:
            break
        before = (newer.work_s - older.work_s) / older_s
        mean = (now.work_s - older.work_s) / (now.at_s - older.at_s)
        variance = dispersion * max(mean, 1e-9) * request_s * (1 / taken_s + 1 / older_s)
        if abs(level - before) > CHANGE_Z * math.sqrt(variance):
            break
        level, newer, taken_s = mean, older, now.at_s - older.at_s
    return level


def _misses(history: tuple[Moment, ...], request_s: float) -> Iterator[float]:
    """For each horizon: the square of what the level of then fell short by, twice since a normal
    error falls short half of the time. 1 where there is no level to judge."""
    now = history[-1]
    for horizon_s in HORIZONS_S:
        then = _at(history, now.at_s - horizon_s)
        elapsed_s = now.at_s - then.at_s
        if then.level <= 0 or elapsed_s < 0.7 * horizon_s:
            yield PRIOR_DISPERSION
            continue
        short = max(0.0, now.work_s - then.work_s - then.level * elapsed_s)
        yield 2 * short**2 / (then.level * elapsed_s * max(request_s, 1e-9))
