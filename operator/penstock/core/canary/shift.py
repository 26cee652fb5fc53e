"""Whether log TTFT, log TPOT or log output length moved: differences of means, block by block.

    block -> gathered until both sides have a few requests -> less the level of its bin
      -> difference of means, weighted by its precision -> variance from the requests, times the
      dispersion of the differences

What both sides share (a slow minute, a shift of the load) cancels in the difference. Prompt length
and the requests ahead cancel with the level of the bin, also where one side has no request of that
bin in that block. How many are ahead is known before the answer, so a canary gains nothing by it; a
queue that its control never had is not compared: what it does to clients is a test of its own.
"""

from dataclasses import dataclass, replace
from functools import reduce

from penstock.core.canary.dispersion import UNDISPERSED, Dispersion
from penstock.core.canary.estimate import NO_ESTIMATE, Estimate
from penstock.core.canary.evidence import NUM_AHEADS, Binned
from penstock.core.canary.moments import NOTHING, Moments

# An interval ends when there are so many requests, and so many on each side: one of all of them is
# spent on the level of the interval. After so long it ends with one request on each side.
INTERVAL_REQUESTS = 16
SIDE_REQUESTS = 4
INTERVAL_S = 60.0
# No verdict on less: how alike neighbours are has to show first.
MIN_INTERVALS = 10
MIN_REQUESTS = 16
# Before it shows, what an interval holds beyond a few requests is taken to be alike by so much (their
# correlation), as strongly as so many intervals would say it: many may be few independent ones.
ALIKE, ALIKE_INTERVALS = 0.03, 30.0
# Of the control, before a queue of that length is compared.
MIN_LEVEL = 4
# Pseudo-requests: a bin's level leans on that of all lengths with as many ahead, the canary's variance
# on the control's.
LEVEL_PRIOR = 2.0
VARIANCE_PRIOR = 10.0


@dataclass(frozen=True, slots=True)
class Side:
    """What is kept of one side. noise: the sum of squared interval weights per request.

    spread: the sum of squares within intervals, of degrees degrees of freedom.
    """

    n: int = 0
    spread: float = 0.0
    degrees: int = 0
    noise: float = 0.0

    def add(self, residual: Moments, weight: float) -> "Side":
        within = max(0.0, residual.squares - residual.total * residual.mean)
        return Side(
            self.n + residual.n,
            self.spread + within,
            self.degrees + residual.n - 1,
            self.noise + weight * weight / residual.n,
        )

    def variance(self, prior: float, strength: float) -> float:
        """Of one request; `strength` pseudo-requests say `prior`."""
        known = self.degrees + strength
        return (self.spread + strength * prior) / known if known else prior


@dataclass(frozen=True, slots=True)
class Shift:
    """open_*: the interval that is being gathered. levels: what the control showed before it."""

    open_s: float = 0.0
    open_canary: Binned = ()
    open_control: Binned = ()
    levels: Binned = ()
    canary: Side = Side()
    control: Side = Side()
    dispersion: Dispersion = UNDISPERSED

    def add(self, length_s: float, canary: Binned, control: Binned) -> "Shift":
        opened = Shift(
            self.open_s + length_s,
            _plus(self.open_canary, canary),
            _plus(self.open_control, control),
            self.levels,
            self.canary,
            self.control,
            self.dispersion,
        )
        sides = _count(opened.open_canary), _count(opened.open_control)
        is_full = min(sides) >= SIDE_REQUESTS and sum(sides) >= INTERVAL_REQUESTS
        if is_full or (min(sides) and opened.open_s >= INTERVAL_S):
            return opened._closed()
        return opened

    def _closed(self) -> "Shift":
        seen = _plus(self.levels, self.open_control)
        levels = _levels(self.levels or self.open_control)
        canary = _residual(self.open_canary, levels)
        control = _residual(self.open_control, levels)
        if not (canary.n and control.n):
            return replace(self, open_s=0.0, open_canary=(), open_control=(), levels=seen)
        weight = 1 / (1 / canary.n + 1 / control.n)
        return Shift(
            levels=seen,
            canary=self.canary.add(canary, weight),
            control=self.control.add(control, weight),
            dispersion=self.dispersion.add(weight, canary.mean - control.mean),
        )

    def estimate(self) -> Estimate:
        if self.dispersion.n < MIN_INTERVALS or self.canary.n < MIN_REQUESTS:
            return NO_ESTIMATE
        control_variance = self.control.variance(0.0, 0.0)
        canary_variance = self.canary.variance(control_variance, VARIANCE_PRIOR)
        noise = canary_variance * self.canary.noise + control_variance * self.control.noise
        weight = self.dispersion.weight
        if noise <= 0:  # every request alike: a clock that stands still, not a measurement
            return NO_ESTIMATE
        factor = self.dispersion.factor(noise / weight) + self._alike()
        information = weight * weight / (noise * factor)
        return Estimate(self.dispersion.mean, information, self.canary.n, self.control.n)

    def _alike(self) -> float:
        """What is added to the design effect for what may not have shown yet (Kish 1965)."""
        n = self.dispersion.n
        per_interval = self.dispersion.weight / n
        return (
            ALIKE * max(0.0, per_interval - SIDE_REQUESTS) * ALIKE_INTERVALS / (n + ALIKE_INTERVALS)
        )


def _plus(left: Binned, right: Binned) -> Binned:
    if not left:
        return right
    return tuple(a.plus(b) if b.n else a for a, b in zip(left, right, strict=True))


def _count(bins: Binned) -> int:
    return sum(moments.n for moments in bins)


def _levels(seen: Binned) -> list[float | None]:
    """The level of each bin, by what the control showed; None where it had hardly such a queue."""
    of_aheads = [
        reduce(Moments.plus, filter(_n, seen[ahead::NUM_AHEADS]), NOTHING)
        for ahead in range(NUM_AHEADS)
    ]
    return [
        _leaning(each, of_aheads[index % NUM_AHEADS].mean)
        if of_aheads[index % NUM_AHEADS].n >= MIN_LEVEL
        else None
        for index, each in enumerate(seen)
    ]


def _n(moments: Moments) -> int:
    return moments.n


def _leaning(moments: Moments, level: float) -> float:
    return (moments.total + LEVEL_PRIOR * level) / (moments.n + LEVEL_PRIOR)


def _residual(bins: Binned, levels: list[float | None]) -> Moments:
    n, total, squares = 0, 0.0, 0.0
    for moments, level in zip(bins, levels, strict=True):
        if moments.n and level is not None:
            rest = moments.without(level)
            n, total, squares = n + rest.n, total + rest.total, squares + rest.squares
    return Moments(n, total, squares)
