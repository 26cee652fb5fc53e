"""Exponential means of a rate, each of which is a forecaster: by its last value, or with its trend."""

import math
from dataclasses import dataclass

# Time constants. A short one follows a step, a long one does not follow what is over before a pod starts.
TIME_CONSTANTS_S = (10.0, 30.0, 90.0, 270.0, 810.0)
# Even ones take the mean of a time constant for the future, odd ones go on with its trend.
FORECASTERS = range(2 * len(TIME_CONSTANTS_S))
# A trend goes on up to this multiple of the mean, and down to its inverse.
MAX_TREND = 3.0


@dataclass(frozen=True, slots=True)
class Means:
    """Exponential means of a rate by time constant, and the means of these means (Brown, 1956)."""

    values: tuple[tuple[float, float], ...] = ((0.0, 0.0),) * len(TIME_CONSTANTS_S)

    def after(self, rate: float, elapsed_s: float, age_s: float) -> "Means":
        """The means with the rate of the last elapsed_s. age_s: time since the first observation."""
        values = []
        for constant_s, (mean, second) in zip(TIME_CONSTANTS_S, self.values, strict=True):
            share = newest_share(elapsed_s, constant_s, age_s)
            mean += share * (rate - mean)
            values.append((mean, second + share * (mean - second)))
        return Means(tuple(values))

    def ahead(self, forecaster: int, lead_s: float) -> float:
        """The rate in lead_s by one of FORECASTERS."""
        index, has_trend = divmod(forecaster, 2)
        mean, second = self.values[index]
        if not has_trend:
            return mean
        found = mean + (mean - second) * (1 + lead_s / TIME_CONSTANTS_S[index])
        return min(MAX_TREND * mean, max(mean / MAX_TREND, found))

    def scaled(self, factor: float) -> "Means":
        return Means(tuple((factor * mean, factor * second) for mean, second in self.values))


def newest_share(elapsed_s: float, constant_s: float, age_s: float) -> float:
    """Weight of the last elapsed_s in an exponential mean over age_s in all, so that weights sum up to 1."""
    return math.expm1(-elapsed_s / constant_s) / math.expm1(-age_s / constant_s)


def time_constant_s(forecaster: int) -> float:
    return TIME_CONSTANTS_S[forecaster // 2]
