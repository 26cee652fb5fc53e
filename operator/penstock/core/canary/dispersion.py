"""Estimates the design effect: by how much correlated requests inflate the variance of differences.

Queues correlate requests that are close in time, so a block of ten requests may carry the information of
three. Differences are batched at several scales (batch means). If batches of some scale vary more than
sampling noise explains, the information is divided by the excess.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

# Batch lengths in intervals. Correlation that lasts longer than the longest batch cannot be told from a
# regression within an hour.
SCALES = (1, 2, 4, 8, 16)
# Shrinkage of an excess variance, in units of its own sampling variance. At 0, estimation noise costs 10 %
# of the information of independent requests; at 10, real correlation is missed.
SHRINKAGE = 2.5
# Increase of an excess that is known from n intervals only: it is multiplied by 1 + CAUTION / n.
CAUTION = 20.0
# Shrinkage for `lasting_factor`, which compares longer batches with single intervals.
LASTING_SHRINKAGE = 6.0
# Least number of batches from which the variance of a scale is estimated.
MIN_BATCHES = 6
# The final analysis at maxDuration uses batch means (Law 2015, section 9.5.3) of the longest scale with at
# least so many batches. One-sided 2.5 %, as in non-inferiority trials (ICH E9).
TIMEOUT_BATCHES = 12
TIMEOUT_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Batches:
    """Weighted sums over completed batches of one scale, and the open batch. Field names are stored."""

    scale: int
    n: int = 0
    weight: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    filled: int = 0
    open_weight: float = 0.0
    open_total: float = 0.0

    def add(self, weight: float, difference: float) -> "Batches":
        """Add the difference of one interval. weight: its precision, in requests."""
        w = self.open_weight + weight
        t = self.open_total + weight * difference
        if self.filled + 1 < self.scale:
            return Batches(
                self.scale, self.n, self.weight, self.total, self.squares, self.filled + 1, w, t
            )
        return Batches(
            self.scale, self.n + 1, self.weight + w, self.total + t, self.squares + t * t / w
        )

    def relative_excess(self, variance: float, kurtosis: float, doubt: float) -> float:
        """Relative excess of the batches' variance over `variance` per request, >= 0.

        It is shrunk according to the sampling variance of a sample variance.
        """
        if self.n < MIN_BATCHES:
            return 0.0
        sampling_variance = (2 + kurtosis / self.scale) / (self.n - 1)
        return shrink(self.variance / variance - 1, doubt * sampling_variance)

    @property
    def variance(self) -> float:
        """Variance per request, from the batches. Raises ZeroDivisionError for fewer than two batches."""
        return (self.squares - self.total * self.total / self.weight) / (self.n - 1)


def student_t(z: float, degrees: int) -> float:
    """Quantile of Student's t with the same probability as the normal quantile z.

    Accurate to 0.01 from eight degrees of freedom (Abramowitz and Stegun, 26.7.5).
    """
    first, second = z**3 + z, 5 * z**5 + 16 * z**3 + 3 * z
    return z + first / (4 * degrees) + second / (96 * degrees * degrees)


def shrink(excess: float, doubt: float) -> float:
    """Shrink an excess towards 0: little if it is large against its own noise `doubt`, else strongly."""
    return excess * excess * excess / (excess * excess + doubt) if excess > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Differences of one metric, batched at several scales. The field name is stored."""

    scales: tuple[Batches, ...] = tuple(Batches(scale) for scale in SCALES)

    def add(self, weight: float, difference: float) -> "Dispersion":
        return Dispersion(tuple(batches.add(weight, difference) for batches in self.scales))

    def factor(self, variance: float, kurtosis: float = 0.0) -> float:
        """Variance inflation factor, >= 1; 1 for independent requests.

        variance: of one independent request. kurtosis: excess kurtosis of one interval's difference, 0 for
        a normal distribution.
        """
        if variance <= 0:
            return 1.0
        excess = max(
            batches.relative_excess(variance, kurtosis, SHRINKAGE) for batches in self.scales
        )
        return 1 + excess * (1 + CAUTION / self.scales[0].n) if excess else 1.0

    @property
    def variance(self) -> float:
        """Variance per request, from single intervals. Raises ZeroDivisionError for fewer than two."""
        return self.scales[0].variance

    @property
    def lasting_factor(self) -> float:
        """Variance inflation of longer batches over single intervals, >= 1; 1 if those are independent."""
        variance = self.variance
        if variance <= 0:
            return 1.0
        return 1 + max(b.relative_excess(variance, 0.0, LASTING_SHRINKAGE) for b in self.scales[1:])

    def timeout_margin(self, least_variance: float = 0.0) -> float:
        """Margin of the mean's upper bound in the final analysis; infinite for too few batches.

        least_variance: lower limit of the variance of the mean.
        """
        batches = next((b for b in reversed(self.scales) if b.n >= TIMEOUT_BATCHES), None)
        if batches is None:
            return math.inf
        variance = max(least_variance, batches.variance / self.weight)
        return student_t(TIMEOUT_Z, batches.n - 1) * math.sqrt(variance)

    @property
    def n(self) -> int:
        return self.scales[0].n

    @property
    def weight(self) -> float:
        return self.scales[0].weight

    @property
    def mean(self) -> float:
        finest = self.scales[0]
        return finest.total / finest.weight if finest.weight else math.nan


NO_DISPERSION = Dispersion()
