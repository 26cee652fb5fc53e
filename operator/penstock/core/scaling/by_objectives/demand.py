"""How much work arrives, and how much more may come than the last minutes show.

Work is in seconds of engine time, so a rate of work is a number of engines. The level is the mean
over the longest recent window in which nothing changed. How wrong that was, at each horizon, is
counted as time goes on (forecast_errors.py): the headroom to provide is the smallest with which little
enough would have been lost. Neither trend nor season: on public traces both lose to the last value
for horizons below an hour.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, replace

from penstock.core.scaling.by_objectives.forecast_errors import (
    HEADROOMS,
    HORIZONS_S,
    ForecastErrors,
    index_of,
    normal_excess,
    smallest,
)

# A window that is compared with the one before it: from, growing by, to.
SHORTEST_WINDOW_S = 10.0
WINDOW_GROWTH = 1.5
LONGEST_WINDOW_S = 640.0
# Two neighboring windows differ when their rates are so many standard deviations apart.
CHANGE_Z = 3.3
# Before any data: arrivals like Poisson's with sizes that vary as much as their mean, around a level
# that wanders by so much of itself in so long (Azure's conversations: 11 to 18% mean error of the last
# value after two minutes, its noise included). Believed like so many seconds of data.
PRIOR_DISPERSION = 2.0
PRIOR_DRIFT, PRIOR_DRIFT_S = 0.1, 120.0
PRIOR_S = 1800.0
# What is believed of the level in the first seconds is not judged by what follows.
WARM_UP_S = 60.0
NOISE_BLOCK_S = 10.0


@dataclass(frozen=True, slots=True)
class Moment:
    """work_s: of all that arrived until at_s. level: the rate that was believed then."""

    at_s: float
    work_s: float
    level: float


@dataclass(frozen=True, slots=True)
class Demand:
    """noise: of short windows, over what arrivals one by one would give. surprises: by horizon."""

    history: tuple[Moment, ...] = ()
    since_s: float = 0.0
    noise: float = PRIOR_DISPERSION
    surprises: tuple[ForecastErrors, ...] = (ForecastErrors(),) * len(HORIZONS_S)

    @property
    def level(self) -> float:
        return self.history[-1].level if self.history else 0.0

    def level_at(self, at_s: float) -> float:
        """That was believed then, or as far back as is known."""
        return _at(self.history, at_s).level if self.history else 0.0

    def after(self, now_s: float, work_s: float, request_s: float) -> "Demand":
        """work_s: that arrived since the last look. request_s: the mean work of a request."""
        if not self.history:
            return replace(self, history=(Moment(now_s, 0.0, 0.0),), since_s=now_s)
        last = self.history[-1]
        total = last.work_s + work_s
        history = (*self._kept(now_s), Moment(now_s, total, 0.0))
        noise = self._noise(history, request_s, now_s - last.at_s)
        history = (*history[:-1], Moment(now_s, total, _level(history, request_s, noise)))
        surprises = tuple(
            self._updated_errors(seen, horizon_s, history)
            for horizon_s, seen in zip(HORIZONS_S, self.surprises, strict=True)
        )
        return replace(self, history=history, noise=noise, surprises=surprises)

    def restated(self, now_s: float, factor: float) -> "Demand":
        """Each request that came in the first minute, with so many times the work: what is believed of it
        at first is a guess, and what follows is measured in better ones."""
        if now_s - self.since_s >= WARM_UP_S:
            return self
        history = (
            replace(m, work_s=factor * m.work_s, level=factor * m.level) for m in self.history
        )
        return replace(self, history=tuple(history))

    def until(self, at_s: float) -> "Demand":
        """Without what was seen after that; two looks stay, as a level needs two."""
        count = bisect_right(self.history, at_s, key=_time)
        return replace(self, history=self.history[: max(2, count)])

    def steady(self, at_s: float, level: float) -> "Demand":
        """As if that had been the level until then, for as long as windows look back."""
        since_s = at_s - LONGEST_WINDOW_S
        blocks = range(int(LONGEST_WINDOW_S / NOISE_BLOCK_S) + 1)
        passed = (NOISE_BLOCK_S * block for block in blocks)
        history = tuple(Moment(since_s + each_s, level * each_s, level) for each_s in passed)
        return replace(self, history=history, since_s=since_s)

    def resumed(self, at_s: float) -> "Demand":
        """As if no time had gone since the last look until then."""
        gone_s = at_s - self.history[-1].at_s
        history = (replace(m, at_s=m.at_s + gone_s) for m in self.history)
        return replace(self, history=tuple(history))

    def known_share(self, now_s: float) -> float:
        """Of the first minute, what has gone."""
        return min(1.0, (now_s - self.since_s) / WARM_UP_S)

    def sure_share(self, now_s: float, request_s: float) -> float:
        """In the first minute, of the level: of which what came would be a change. What is
        asked for too early is not given back soon, and a minute hardly counts beside a pod's start."""
        came_s = self.level * (now_s - self.since_s)
        if now_s - self.since_s >= WARM_UP_S or came_s <= 0:
            return 1.0
        half = CHANGE_Z * math.sqrt(self.noise * request_s / came_s) / 2
        return (math.sqrt(1 + half * half) - half) ** 2

    def kept(self) -> "Demand":
        """Without its history, as it is written down: the next look is the first one."""
        return Demand(noise=self.noise, surprises=tuple(s.without_time() for s in self.surprises))

    def headroom(self, horizon_s: float, loss: float, request_s: float) -> float:
        """The smallest multiple of the level beyond which at most the share `loss` came, of all
        work within horizon_s."""
        drift = self._drift(horizon_s) / math.sqrt(3)  # of its mean from 0 to horizon_s
        spread = math.hypot(self._grain(horizon_s, request_s), drift)
        seen = self.surprises[index_of(horizon_s)]
        # Longer horizons hold fewer independent looks, so the belief weighs as many of them.
        mine = seen.watched_s / (seen.watched_s + PRIOR_S + 2 * horizon_s)
        came = max(seen.came, 1e-12)

        def share(index: int) -> float:
            believed = normal_excess(HEADROOMS[index], spread)
            return mine * seen.beyond[index] / came + (1 - mine) * believed

        return smallest(share, loss)

    def _grain(self, window_s: float, request_s: float) -> float:
        """By how much the mean of a window differs from the level, as requests come one by one."""
        return math.sqrt(self.noise * request_s / max(self.level * window_s, 0.1 * request_s))

    def _drift(self, horizon_s: float) -> float:
        """By how much the level itself moves in that time."""
        return PRIOR_DRIFT * math.sqrt(horizon_s / PRIOR_DRIFT_S)

    def _updated_errors(
        self, errors: ForecastErrors, horizon_s: float, history: tuple[Moment, ...]
    ) -> ForecastErrors:
        now = history[-1]
        if not errors.is_due(now.at_s, horizon_s):
            return errors
        then = _at(history, now.at_s - horizon_s)
        elapsed_s = now.at_s - then.at_s
        is_warm = then.at_s >= self.since_s + WARM_UP_S
        if not is_warm or then.level <= 0 or elapsed_s < 0.7 * horizon_s:
            return errors
        came = (now.work_s - then.work_s) / elapsed_s
        since_s = min(now.at_s - errors.at_s, horizon_s)  # the first update stands for one horizon
        return errors.with_observation(now.at_s, since_s, then.level, came)

    def _noise(self, history: tuple[Moment, ...], request_s: float, elapsed_s: float) -> float:
        """Noise of the demand, from the difference of two neighboring blocks: a step counts only once."""
        now = history[-1]
        middle = _at(history, now.at_s - NOISE_BLOCK_S)
        first = _at(history, middle.at_s - NOISE_BLOCK_S)
        if middle.at_s - first.at_s < 0.7 * NOISE_BLOCK_S:
            return self.noise
        newer, older = now.work_s - middle.work_s, middle.work_s - first.work_s
        expected = (newer + older) * request_s
        if expected <= 0:
            return self.noise
        # A difference beyond three deviations is a change, and no noise.
        now_noise = min((newer - older) ** 2 / expected, 9 * self.noise)
        return max(0.3, self.noise + (now_noise - self.noise) * min(1.0, elapsed_s / 600.0))

    def _kept(self, now_s: float) -> tuple[Moment, ...]:
        """As far back as the longest window and horizon need, cut a few dozen at a time."""
        oldest_s = now_s - LONGEST_WINDOW_S
        if self.history[0].at_s > oldest_s - 120:
            return self.history
        return self.history[bisect_right(self.history, oldest_s, key=_time) - 1 :]


def _time(moment: Moment) -> float:
    return moment.at_s


def _at(history: tuple[Moment, ...], at_s: float) -> Moment:
    """The last moment not after at_s, or the first."""
    return history[max(0, bisect_right(history, at_s, key=_time) - 1)]


def _level(history: tuple[Moment, ...], request_s: float, noise: float) -> float:
    """The mean rate since the last change: the window grows while what it adds is alike."""
    now = history[-1]
    newer = _at(history, now.at_s - SHORTEST_WINDOW_S)
    taken_s = now.at_s - newer.at_s
    if taken_s <= 0:
        return 0.0
    level = (now.work_s - newer.work_s) / taken_s
    while taken_s < LONGEST_WINDOW_S:
        older = _at(history, now.at_s - WINDOW_GROWTH * max(taken_s, SHORTEST_WINDOW_S))
        older_s = newer.at_s - older.at_s
        if older_s <= 0:
            break
        before = (newer.work_s - older.work_s) / older_s
        mean = (now.work_s - older.work_s) / (now.at_s - older.at_s)
        variance = noise * max(mean, 1e-9) * request_s * (1 / taken_s + 1 / older_s)
        if abs(level - before) > CHANGE_Z * math.sqrt(variance):
            break
        level, newer, taken_s = mean, older, now.at_s - older.at_s
    return level
