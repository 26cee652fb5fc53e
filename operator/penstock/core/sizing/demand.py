"""How much work arrives, and how much more may come than the last minutes show.

Work is in seconds of engine time, so a rate of work is a number of engines. The level is the mean
over the longest recent window in which nothing changed. What would have been lost by relying on it,
at each horizon and with each headroom, is counted as time goes on: the headroom to provide is the
smallest whose loss was small enough. Neither trend nor season: on public traces both lose to the
last value for horizons below an hour.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import pairwise

HORIZONS_S = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
HEADROOMS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 1.8, 2.2, 2.8, 4.0)
# A window that is compared with the one before it: from, growing by, to.
SHORTEST_WINDOW_S = 10.0
WINDOW_GROWTH = 1.5
LONGEST_WINDOW_S = 640.0
# Two neighbouring windows differ when their rates are so many standard deviations apart.
CHANGE_Z = 3.3
# What was lost is forgotten by 63% in this time.
MEMORY_S = 7200.0
# Before any data: arrivals like Poisson's with sizes that vary as much as their mean, believed like
# so many seconds of data.
PRIOR_DISPERSION = 2.0
PRIOR_S = 1800.0
# What is believed of the level in the first seconds is not judged by what follows.
WARM_UP_S = 60.0
NOISE_BLOCK_S = 10.0

Losses = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """work_s: of all that arrived until at_s. level: the rate that was believed then."""

    at_s: float
    work_s: float
    level: float


@dataclass(frozen=True, slots=True)
class Demand:
    """noise: of short windows, over what arrivals one by one would give. lost: for each horizon and
    headroom, the mean rate of work beyond level * headroom; of `judged`, the mean rate that came."""

    history: tuple[Moment, ...] = ()
    since_s: float = 0.0
    noise: float = PRIOR_DISPERSION
    lost: Losses = field(default=((0.0,) * len(HEADROOMS),) * len(HORIZONS_S))
    judged: tuple[float, ...] = (0.0,) * len(HORIZONS_S)
    watched_s: tuple[float, ...] = (0.0,) * len(HORIZONS_S)

    @property
    def level(self) -> float:
        return self.history[-1].level if self.history else 0.0

    def after(self, now_s: float, work_s: float, request_s: float) -> "Demand":
        """work_s: that arrived since the last look. request_s: the mean work of a request."""
        if not self.history:
            return replace(self, history=(Moment(now_s, 0.0, 0.0),), since_s=now_s)
        last = self.history[-1]
        total = last.work_s + work_s
        history = (*self._kept(now_s), Moment(now_s, total, 0.0))
        noise = self._noise(history, request_s, now_s - last.at_s)
        history = (*history[:-1], Moment(now_s, total, _level(history, request_s, noise)))
        lost, judged, watched_s = [], [], []
        rows = zip(HORIZONS_S, self.lost, self.judged, self.watched_s, strict=True)
        for horizon_s, row, mean, seen_s in rows:
            then = _at(history, now_s - horizon_s)
            elapsed_s = now_s - then.at_s
            is_warm = then.at_s >= self.since_s + WARM_UP_S
            if is_warm and then.level > 0 and elapsed_s >= 0.7 * horizon_s:
                came = (total - then.work_s) / elapsed_s
                weight = (now_s - last.at_s) / (seen_s + now_s - last.at_s)
                beyond = (max(0.0, came - then.level * headroom) for headroom in HEADROOMS)
                row = tuple(x + weight * (b - x) for x, b in zip(row, beyond, strict=True))
                mean += weight * (came - mean)
                seen_s = min(seen_s + now_s - last.at_s, MEMORY_S)
            lost.append(row)
            judged.append(mean)
            watched_s.append(seen_s)
        return replace(
            self,
            history=history,
            noise=noise,
            lost=tuple(lost),
            judged=tuple(judged),
            watched_s=tuple(watched_s),
        )

    def headroom(self, horizon_s: float, loss: float, request_s: float) -> float:
        """The smallest multiple of the level beyond which at most the share `loss` came, of all
        work within horizon_s."""
        index = next((i for i, h in enumerate(HORIZONS_S) if h >= horizon_s), len(HORIZONS_S) - 1)
        watched_s = self.watched_s[index]
        # Longer horizons hold fewer independent looks, so the belief weighs as many of them.
        belief = PRIOR_S + 2 * horizon_s
        mine = watched_s / (watched_s + belief)
        spread = math.sqrt(
            PRIOR_DISPERSION * request_s / max(self.level * horizon_s, 0.1 * request_s)
        )
        mean = max(self.judged[index], 1e-12)
        shares = [
            mine * lost / mean + (1 - mine) * _normal_loss(headroom, spread)
            for headroom, lost in zip(HEADROOMS, self.lost[index], strict=True)
        ]
        return _where(shares, loss)

    def _noise(self, history: tuple[Moment, ...], request_s: float, elapsed_s: float) -> float:
        """From the difference of two neighbouring blocks: a step of the level shows only once."""
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


def _normal_loss(headroom: float, spread: float) -> float:
    """E[max(0, x - headroom)] of x normal around 1 (the loss function of the newsvendor)."""
    k = (headroom - 1) / spread
    density = math.exp(-k * k / 2) / math.sqrt(2 * math.pi)
    return spread * (density - k * 0.5 * math.erfc(k / math.sqrt(2)))


def _where(shares: list[float], loss: float) -> float:
    """The headroom at which the falling shares pass `loss`, between the points of the grid."""
    if shares[0] <= loss:
        return HEADROOMS[0]
    for (low, high), (above, below) in zip(pairwise(HEADROOMS), pairwise(shares), strict=True):
        if below <= loss:
            return low + (high - low) * (above - loss) / max(above - below, 1e-12)
    return HEADROOMS[-1]
