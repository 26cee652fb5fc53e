"""Whether log TTFT, log TPOT or log output length moved: differences of means, block by block.

    block -> gathered until both sides have a few requests -> less the level of its bin
      -> difference of means, weighted by its precision -> variance from the differences themselves,
      and at first from the requests within them

What both sides share (a slow minute, a shift of the load) cancels in the difference. Prompt length
and the requests ahead cancel with the level of the bin, also where one side has no request of that
bin in that block. How many are ahead is known before the answer, so a canary gains nothing by it; a
queue that its control never had is not compared: what it does to clients is a test of its own.
"""

from dataclasses import dataclass, replace
from functools import reduce

from penstock.core.canary.dispersion import UNDISPERSED, Dispersion
from penstock.core.canary.estimate import NO_ESTIMATE, Estimate
from penstock.core.canary.evidence import Binned
from penstock.core.canary.moments import NOTHING, Moments

# An interval ends when there are so many requests, and so many on each side: one of all of them is
# spent on the level of the interval. After so long it ends with one request on each side.
INTERVAL_REQUESTS = 16
SIDE_REQUESTS = 4
INTERVAL_S = 60.0
# No verdict on less: how alike neighbours are has to show first.
MIN_INTERVALS = 10
MIN_REQUESTS = 16
# Before it shows, each request is taken to share the fate of those it stood in line behind and, as often,
# of those that stood in line behind it: so many fewer count as independent (Kish 1965), and at most so
# many fewer, since an engine that begins many at once has no line. The canary's are as alike as the
# longer of both lines says: one that a long prompt holds up has its own. It is said as strongly as so
# many intervals would say it.
ASSUMED_INTERVALS = 30.0
MOST_ALIKE = 12.0
# By bin of requests ahead: the middle of the bin, less the one that is being answered, which is no line.
IN_LINE = (0.0, 0.0, 1.5, 4.5, 10.5, 20.0)
# By bin of requests beside: the middle. They are no line, but as alike: they share their steps.
AT_ONCE = (0.0, 1.0, 2.0, 3.0, 4.5, 7.0, 10.5, 15.5, 23.0, 34.0, 50.5, 80.0)
NO_LINES = (0.0,)
# Of the control, before a queue of that length is compared.
MIN_LEVEL = 4
# Pseudo-requests: a bin's level leans on that of all lengths with as many ahead, the canary's variance
# on the control's.
LEVEL_PRIOR = 2.0
VARIANCE_PRIOR = 10.0


@dataclass(frozen=True, slots=True)
class Side:
    """What is kept of one side. noise: the sum of squared interval weights per request.

    spread: the sum of squares within intervals, of degrees degrees of freedom. in_line: the sum over
    requests of those that each stood in line behind.
    """

    n: int = 0
    spread: float = 0.0
    degrees: int = 0
    noise: float = 0.0
    in_line: float = 0.0

    def add(self, residual: Moments, weight: float, in_line: float) -> "Side":
        """in_line: the mean of the interval."""
        within = max(0.0, residual.squares - residual.total * residual.mean)
        return Side(
            self.n + residual.n,
            self.spread + within,
            self.degrees + residual.n - 1,
            self.noise + weight * weight / residual.n,
            self.in_line + residual.n * in_line,
        )

    @property
    def alike(self) -> float:
        """How many requests count as one."""
        return min(MOST_ALIKE, 1 + 2 * self.in_line / self.n)

    def variance(self, prior: float, strength: float) -> float:
        """Of one request; `strength` pseudo-requests say `prior`."""
        known = self.degrees + strength
        return (self.spread + strength * prior) / known if known else prior


@dataclass(frozen=True, slots=True)
class Shift:
    """open_*: the interval that is being gathered. levels: what the control showed before it.

    assumed: degrees of freedom of what is assumed of the variance before it shows; 0: nothing is.
    """

    assumed: float = ASSUMED_INTERVALS
    open_s: float = 0.0
    open_canary: Binned = ()
    open_control: Binned = ()
    levels: Binned = ()
    canary: Side = Side()
    control: Side = Side()
    dispersion: Dispersion = UNDISPERSED

    def add(
        self, length_s: float, canary: Binned, control: Binned, lines: tuple[float, ...]
    ) -> "Shift":
        """lines: by the bins of each prompt length, those that a request is alike with."""
        opened = replace(
            self,
            open_s=self.open_s + length_s,
            open_canary=_plus(self.open_canary, canary),
            open_control=_plus(self.open_control, control),
        )
        sides = _count(opened.open_canary), _count(opened.open_control)
        is_full = min(sides) >= SIDE_REQUESTS and sum(sides) >= INTERVAL_REQUESTS
        if is_full or (min(sides) and opened.open_s >= INTERVAL_S):
            return opened._closed(lines)
        return opened

    def _closed(self, lines: tuple[float, ...]) -> "Shift":
        seen = _plus(self.levels, self.open_control)
        levels = _levels(self.levels or self.open_control, len(lines))
        canary = _residual(self.open_canary, levels)
        control = _residual(self.open_control, levels)
        if not (canary.n and control.n):
            return replace(self, open_s=0.0, open_canary=(), open_control=(), levels=seen)
        weight = 1 / (1 / canary.n + 1 / control.n)
        return Shift(
            self.assumed,
            levels=seen,
            canary=self.canary.add(canary, weight, _in_line(self.open_canary, lines)),
            control=self.control.add(control, weight, _in_line(self.open_control, lines)),
            dispersion=self.dispersion.add(weight, canary.mean - control.mean),
        )

    def estimate(self) -> Estimate:
        if self.dispersion.n < MIN_INTERVALS or self.canary.n < MIN_REQUESTS:
            return NO_ESTIMATE
        spread, shown = self.dispersion, self.dispersion.n - 1
        degrees = self.assumed + shown
        variance = (self.assumed * self._assumed() + shown * spread.variance) / degrees
        if variance <= 0:  # every request alike: a clock that stands still, not a measurement
            return NO_ESTIMATE
        information = spread.weight / (variance * spread.lasting)
        return Estimate(spread.mean, information, degrees, self.canary.n, self.control.n)

    def last_bound(self, least_variance: float = 0.0) -> float:
        """Of canary less control, of one look at a time that was set before. least_variance: of the mean."""
        return self.dispersion.mean + self.dispersion.last_margin(least_variance)

    def _assumed(self) -> float:
        """The variance of one request, of the mean of as many as are alike together."""
        control_variance = self.control.variance(0.0, 0.0)
        canary_variance = self.canary.variance(control_variance, VARIANCE_PRIOR)
        control_alike = self.control.alike
        canary_alike = max(self.canary.alike, control_alike)
        noise = canary_alike * canary_variance * self.canary.noise
        noise += control_alike * control_variance * self.control.noise
        return noise / self.dispersion.weight


def _plus(left: Binned, right: Binned) -> Binned:
    if not left:
        return right
    return tuple(a.plus(b) if b.n else a for a, b in zip(left, right, strict=True))


def _count(bins: Binned) -> int:
    return sum(moments.n for moments in bins)


def _in_line(bins: Binned, lines: tuple[float, ...]) -> float:
    """The mean of the requests' lines."""
    total = sum(moments.n * lines[index % len(lines)] for index, moments in enumerate(bins))
    return total / _count(bins)


def _levels(seen: Binned, num_lines: int) -> list[float | None]:
    """The level of each bin, by what the control showed; None where it had hardly such a queue."""
    of_lines = [
        reduce(Moments.plus, filter(_n, seen[line::num_lines]), NOTHING)
        for line in range(num_lines)
    ]
    return [
        _leaning(each, of_lines[index % num_lines].mean)
        if of_lines[index % num_lines].n >= MIN_LEVEL
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
