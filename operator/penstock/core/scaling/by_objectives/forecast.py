"""Forecast of the load one start-up ahead, when a pod that is requested now is ready, and its errors.

The upper bound of the forecast is the smallest number of replicas beyond which a small enough fraction of the
load is expected. It is found from the errors of earlier forecasts. Errors are multiples of the root of the
forecast, because the spread of independent requests grows with the root of their number (square-root
staffing: Jennings, Mandelbaum, Massey and Whitt, 1996).
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from penstock.core.scaling.by_objectives.arrivals import PRIOR_DISPERSION
from penstock.core.scaling.by_objectives.history import index_at
from penstock.core.scaling.signals import STALE_S

# Deviations beyond which the load is counted, as multiples of the root of the forecast.
DEVIATIONS = (0.0, *(0.03 * 1.5**i for i in range(1, 18)))
# Errors and the largest load fade by 63% in this time.
MEMORY_S = 7200.0
# Prior: standard deviation of the change of the load in one second, as a fraction of the load. It grows with
# the root of the time.
PRIOR_DRIFT = 0.009
# The prior counts as much as errors that were measured for this time and two start-ups.
PRIOR_S = 600.0
# Forecasts of the first seconds are not judged: too few requests had come.
WARM_UP_S = 20.0
# Added to the forecast under the root, in replicas, so that a forecast of zero has a margin too.
LEAST_LOAD = 0.01


@dataclass(frozen=True, slots=True)
class Moment:
    """The load at a time, and the forecast that was made then for one start-up later; in replicas."""

    at_s: float
    load: float
    forecast: float

    def scaled(self, factor: float) -> "Moment":
        return Moment(self.at_s, factor * self.load, factor * self.forecast)


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of earlier forecasts.

    load: mean load. beyond: mean load beyond the forecast, by deviation. peak: largest load, which
    fades. watched_s: time for which errors were counted.
    """

    load: float = 0.0
    beyond: tuple[float, ...] = (0.0,) * len(DEVIATIONS)
    peak: float = 0.0
    watched_s: float = 0.0

    def updated(self, elapsed_s: float, then: Moment, load: float) -> "Errors":
        """Add the error of a forecast whose time has come. elapsed_s: time since the last one."""
        weight = elapsed_s / (self.watched_s + elapsed_s)
        error, root = load - then.forecast, _root(then.forecast)
        beyond = (
            mean + weight * (max(0.0, error - root * deviation) - mean)
            for mean, deviation in zip(self.beyond, DEVIATIONS, strict=True)
        )
        return Errors(
            self.load + weight * (load - self.load),
            tuple(beyond),
            self.peak,
            min(self.watched_s + elapsed_s, MEMORY_S),
        )

    def scaled(self, factor: float) -> "Errors":
        """The errors of a load that is `factor` times as large. Deviations are in roots of the load."""
        return Errors(
            factor * self.load,
            tuple(factor * each for each in self.beyond),
            factor * self.peak,
            self.watched_s,
        )


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecasts of the load one start-up ahead, and their errors. since_s: time of the first one."""

    since_s: float = 0.0
    history: tuple[Moment, ...] = ()
    errors: Errors = field(default_factory=Errors)

    @property
    def now(self) -> Moment:
        return self.history[-1]

    def updated(self, now_s: float, load: float, forecast: float, *, lead_s: float) -> "Forecast":
        """Add the load now and its forecast for lead_s later, and the error of the forecast for now.

        While metrics were missing nothing was forecast, and the load across such a gap is not judged.
        """
        moment = Moment(now_s, load, forecast)
        if not self.history:
            return Forecast(now_s, (moment,), self.errors)
        errors = replace(self.errors, peak=self._peak(now_s, load))
        index = index_at(self.history, now_s - lead_s)
        then = self.history[index]
        elapsed_s, age_s = now_s - self.now.at_s, now_s - then.at_s
        is_due = lead_s <= age_s <= lead_s + STALE_S and elapsed_s <= STALE_S
        if is_due and then.at_s > self.since_s + WARM_UP_S:
            errors = errors.updated(elapsed_s, then, load)
        return Forecast(self.since_s, (*self.history[index:], moment), errors)

    def upper(self, loss: float, *, lead_s: float, noise: float) -> float:
        """Replicas beyond which at most the fraction `loss` of the load is expected to be."""
        level, errors = self.now.forecast, self.errors
        root = _root(level)
        drift = PRIOR_DRIFT * level * math.sqrt(lead_s)
        spread = math.hypot(math.sqrt(PRIOR_DISPERSION * noise * max(level, noise)), drift) / root
        measured = errors.watched_s / (errors.watched_s + PRIOR_S + 2 * lead_s)

        def excess(deviation: int) -> float:
            """Fraction of the load beyond a deviation: the weighted mean of measured and prior."""
            prior = root * _normal_excess(DEVIATIONS[deviation], spread) / max(level, 1e-9)
            return (
                measured * errors.beyond[deviation] / max(errors.load, 1e-9)
                + (1 - measured) * prior
            )

        return level + root * _crossing(excess, loss)

    def scaled(self, factor: float) -> "Forecast":
        """The forecast of a load that is `factor` times as large."""
        history = tuple(moment.scaled(factor) for moment in self.history)
        return Forecast(self.since_s, history, self.errors.scaled(factor))

    def _peak(self, now_s: float, load: float) -> float:
        if now_s < self.since_s + WARM_UP_S:
            return self.errors.peak
        faded = 1 - (now_s - self.now.at_s) / MEMORY_S
        return max(load, self.errors.peak * faded)


def _crossing(share: Callable[[int], float], loss: float) -> float:
    """The deviation at which `share`, which falls with its index, reaches `loss`: linear between two."""
    high = bisect_left(range(len(DEVIATIONS)), -loss, key=lambda i: -share(i))
    if high == 0:
        return DEVIATIONS[0]
    if high == len(DEVIATIONS):
        return DEVIATIONS[-1]
    above, below = share(high - 1), share(high)
    part = (above - loss) / max(above - below, 1e-12)
    return DEVIATIONS[high - 1] + part * (DEVIATIONS[high] - DEVIATIONS[high - 1])


def _normal_excess(threshold: float, spread: float) -> float:
    """E[max(0, x - threshold)] of x normal around 0 (the loss function of the newsvendor)."""
    k = threshold / spread
    density = math.exp(-k * k / 2) / math.sqrt(2 * math.pi)
    return spread * (density - k * 0.5 * math.erfc(k / math.sqrt(2)))


def _root(load: float) -> float:
    return math.sqrt(load + LEAST_LOAD)
