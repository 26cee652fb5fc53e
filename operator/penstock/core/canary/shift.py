"""Estimates the shift of log TTFT, log TPOT or log output length between canary and control.

    blocks -> intervals with a few requests on both sides -> residuals against the level of each bin
      -> difference of means, weighted by its precision -> variance from the differences, and from a prior
      while there are few

Effects on both sides (a slow minute, a change of the load) cancel in the difference. Effects of prompt
length and queue length cancel with the level of the bin, even if one side has no request of that bin in
an interval. The queue length is known before the answer, so a canary cannot improve its result by it.
Queues that the control never had are not compared here; "TTFT with queues" tests their effect on clients.
"""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

from penstock.core.canary.bins import Binned
from penstock.core.canary.dispersion import NO_DISPERSION, Dispersion
from penstock.core.canary.estimate import NO_ESTIMATE, Estimate
from penstock.core.canary.moments import NOTHING, Moments

# An interval ends with this many requests in total and on each side (one of them is lost to estimating
# the level of the interval), or after INTERVAL_S with one request on each side.
INTERVAL_REQUESTS = 16
SIDE_REQUESTS = 4
INTERVAL_S = 60.0
# Least numbers of intervals and of requests for an estimate: the correlation must be known first.
MIN_INTERVALS = 10
MIN_REQUESTS = 16
# Prior of the variance, with the weight of this many intervals: a request is taken to be correlated with
# those ahead of it and, as often, with those behind it. The design effect 1 + 2 * queue (Kish 1965) is
# capped, as an engine that starts many requests at once has no queue. For the canary it is the larger of
# both sides' values, because a single long prompt gives the canary a queue of its own.
PRIOR_INTERVALS = 30.0
MAX_DESIGN_EFFECT = 12.0
# Correlated requests by bin of requests ahead: the middle of the bin, without the one being answered.
QUEUE_LENGTHS = (0.0, 0.0, 1.5, 4.5, 10.5, 20.0)
# Correlated requests by bin of concurrent requests: the middle of the bin; they share the engine's steps.
CONCURRENCIES = (0.0, 1.0, 2.0, 3.0, 4.5, 7.0, 10.5, 15.5, 23.0, 34.0, 50.5, 80.0)
UNCORRELATED = (0.0,)
# Least number of the control's requests before a queue length is compared.
MIN_LEVEL = 4
# Pseudo-requests that shrink the level of a bin towards that of all prompt lengths with the same queue
# length, and the canary's variance towards the control's.
LEVEL_PRIOR = 2.0
VARIANCE_PRIOR = 10.0


@dataclass(frozen=True, slots=True)
class ArmMoments:
    """Sufficient statistics of one arm. Field names are stored.

    n: requests. spread: sum of squares within intervals. degrees: its degrees of freedom. noise: sum of the
    squared interval weights per request. in_line: sum over requests of the correlated requests of each.
    """

    n: int = 0
    spread: float = 0.0
    degrees: int = 0
    noise: float = 0.0
    in_line: float = 0.0

    def add(self, residual: Moments, weight: float, in_line: float) -> "ArmMoments":
        """Add an interval. in_line: mean number of correlated requests."""
        within = max(0.0, residual.squares - residual.total * residual.mean)
        return ArmMoments(
            self.n + residual.n,
            self.spread + within,
            self.degrees + residual.n - 1,
            self.noise + weight * weight / residual.n,
            self.in_line + residual.n * in_line,
        )

    @property
    def design_effect(self) -> float:
        """The number of requests that carry the information of one independent request."""
        return min(MAX_DESIGN_EFFECT, 1 + 2 * self.in_line / self.n)

    def variance(self, prior: float, strength: float) -> float:
        """Variance of one request within intervals, shrunk to `prior` by `strength` pseudo-requests."""
        known = self.degrees + strength
        return (self.spread + strength * prior) / known if known else prior


@dataclass(frozen=True, slots=True)
class Shift:
    """State of a shift estimate. Field names are stored; open_*: the unfinished interval, by bin."""

    # Degrees of freedom of the variance's prior; 0 for none
    assumed: float = PRIOR_INTERVALS
    open_s: float = 0.0
    open_canary: Binned = ()
    open_control: Binned = ()
    levels: Binned = ()  # the control's moments by bin, before the unfinished interval
    # canary, control: finished intervals
    canary: ArmMoments = ArmMoments()
    control: ArmMoments = ArmMoments()
    dispersion: Dispersion = NO_DISPERSION

    def add(
        self, length_s: float, canary: Binned, control: Binned, correlated: tuple[float, ...]
    ) -> Self:
        """Add a block. correlated: number of correlated requests, by bin within one prompt length."""
        opened = replace(
            self,
            open_s=self.open_s + length_s,
            open_canary=_plus(self.open_canary, canary),
            open_control=_plus(self.open_control, control),
        )
        sides = _count(opened.open_canary), _count(opened.open_control)
        is_full = min(sides) >= SIDE_REQUESTS and sum(sides) >= INTERVAL_REQUESTS
        if is_full or (min(sides) and opened.open_s >= INTERVAL_S):
            return opened._with_closed_interval(correlated)
        return opened

    def _with_closed_interval(self, correlated: tuple[float, ...]) -> Self:
        seen = _plus(self.levels, self.open_control)
        levels = _levels(self.levels or self.open_control, len(correlated))
        canary = _residuals(self.open_canary, levels)
        control = _residuals(self.open_control, levels)
        if not (canary.n and control.n):
            return replace(self, open_s=0.0, open_canary=(), open_control=(), levels=seen)
        weight = 1 / (1 / canary.n + 1 / control.n)
        return replace(
            self,
            open_s=0.0,
            open_canary=(),
            open_control=(),
            levels=seen,
            canary=self.canary.add(canary, weight, _mean_correlated(self.open_canary, correlated)),
            control=self.control.add(
                control, weight, _mean_correlated(self.open_control, correlated)
            ),
            dispersion=self.dispersion.add(weight, canary.mean - control.mean),
        )

    @property
    def is_empty(self) -> bool:
        """Whether the control has had no value yet."""
        return not _count(self.levels) and not _count(self.open_control)

    def estimate(self) -> Estimate:
        """The shift so far; NO_ESTIMATE while there are too few intervals or requests."""
        if self.dispersion.n < MIN_INTERVALS or self.canary.n < MIN_REQUESTS:
            return NO_ESTIMATE
        spread, shown = self.dispersion, self.dispersion.n - 1
        degrees = self.assumed + shown
        variance = (self.assumed * self._prior_variance() + shown * spread.variance) / degrees
        if variance <= 0:  # identical values: a stopped clock, not a measurement
            return NO_ESTIMATE
        information = spread.weight / (variance * spread.lasting_factor)
        return Estimate(spread.mean, information, degrees, self.canary.n, self.control.n)

    def timeout_bound(self, least_variance: float = 0.0) -> float:
        """Upper bound of the shift in the final analysis. least_variance: lower limit of its variance."""
        return self.dispersion.mean + self.dispersion.timeout_margin(least_variance)

    def _prior_variance(self) -> float:
        """Prior variance per request of an interval's difference, with the design effects of both arms."""
        control_variance = self.control.variance(0.0, 0.0)
        canary_variance = self.canary.variance(control_variance, VARIANCE_PRIOR)
        control_effect = self.control.design_effect
        canary_effect = max(self.canary.design_effect, control_effect)
        noise = canary_effect * canary_variance * self.canary.noise
        noise += control_effect * control_variance * self.control.noise
        return noise / self.dispersion.weight


def _plus(left: Binned, right: Binned) -> Binned:
    if not left:
        return right
    return tuple(a.plus(b) if b.n else a for a, b in zip(left, right, strict=True))


def _count(bins: Binned) -> int:
    return sum(moments.n for moments in bins)


def _mean_correlated(bins: Binned, correlated: tuple[float, ...]) -> float:
    """Mean number of correlated requests per request."""
    total = sum(
        moments.n * correlated[index % len(correlated)] for index, moments in enumerate(bins)
    )
    return total / _count(bins)


def _levels(seen: Binned, num_lines: int) -> list[float | None]:
    """Level of each bin, from the control; None for queue lengths that the control hardly had."""
    of_lines = [
        reduce(Moments.plus, filter(_n, seen[line::num_lines]), NOTHING)
        for line in range(num_lines)
    ]
    return [
        _shrunk_level(each, of_lines[index % num_lines].mean)
        if of_lines[index % num_lines].n >= MIN_LEVEL
        else None
        for index, each in enumerate(seen)
    ]


def _n(moments: Moments) -> int:
    return moments.n


def _shrunk_level(moments: Moments, level: float) -> float:
    return (moments.total + LEVEL_PRIOR * level) / (moments.n + LEVEL_PRIOR)


def _residuals(bins: Binned, levels: list[float | None]) -> Moments:
    n, total, squares = 0, 0.0, 0.0
    for moments, level in zip(bins, levels, strict=True):
        if moments.n and level is not None:
            rest = moments.centered_at(level)
            n, total, squares = n + rest.n, total + rest.total, squares + rest.squares
    return Moments(n, total, squares)
