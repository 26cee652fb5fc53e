"""How much more block differences vary than independent requests would: the design effect.

Queues make neighbours in time alike, so a block of ten requests may be worth three. Differences are
batched at several scales; a scale that varies more than noise explains divides the information.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

# In intervals. What is correlated for longer than the longest looks like a regression to any test
# that has an hour.
SCALES = (1, 2, 4, 8, 16)
# How strongly an excess is doubted, in units of its own sampling variance. At 0 the noise of the
# estimate costs a tenth of the information where there is no correlation, at 10 real correlation
# goes unseen.
DOUBT = 2.5
# An excess that is believed, and known from few intervals only, is taken to be larger than it looks:
# by this many intervals' worth.
CAUTION = 20.0
# The same doubt where single intervals are measured, and only what lasts for longer is asked for.
LASTING_DOUBT = 6.0
# Fewer batches than this tell nothing of their scale.
MIN_BATCHES = 6
# One look at a time that was set before, by batch means (Law 2015, 9.5.3): by the longest batches of
# which there are so many. One-sided 2.5 %, as trials of non-inferiority have it (ICH E9).
LAST_BATCHES = 12
LAST_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Batches:
    """Weighted sums over finished batches of one scale, and the batch that is being filled."""

    scale: int
    n: int = 0
    weight: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    filled: int = 0
    open_weight: float = 0.0
    open_total: float = 0.0

    def add(self, weight: float, difference: float) -> "Batches":
        """weight: the precision of `difference` in requests."""
        w = self.open_weight + weight
        t = self.open_total + weight * difference
        if self.filled + 1 < self.scale:
            return Batches(
                self.scale, self.n, self.weight, self.total, self.squares, self.filled + 1, w, t
            )
        return Batches(
            self.scale, self.n + 1, self.weight + w, self.total + t, self.squares + t * t / w
        )

    def excess(self, variance: float, kurtosis: float, doubt: float) -> float:
        """How much more than `variance` per request the batches vary, as a share of it, >= 0.

        It is shrunk by how well it is known: by the variance of a sample variance.
        """
        if self.n < MIN_BATCHES:
            return 0.0
        sampling_variance = (2 + kurtosis / self.scale) / (self.n - 1)
        return shrunk(self.variance / variance - 1, doubt * sampling_variance)

    @property
    def variance(self) -> float:
        """Of one request, as the batches vary. Raises ZeroDivisionError of fewer than two."""
        return (self.squares - self.total * self.total / self.weight) / (self.n - 1)


def student(z: float, degrees: int) -> float:
    """Student's t that is as unlikely as z of the normal distribution, to a hundredth from eight degrees
    on (Abramowitz and Stegun 26.7.5)."""
    first, second = z**3 + z, 5 * z**5 + 16 * z**3 + 3 * z
    return z + first / (4 * degrees) + second / (96 * degrees * degrees)


def shrunk(excess: float, doubt: float) -> float:
    """An excess that is large against its own noise is believed, a small one is not."""
    return excess * excess * excess / (excess * excess + doubt) if excess > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Dispersion:
    scales: tuple[Batches, ...] = tuple(Batches(scale) for scale in SCALES)

    def add(self, weight: float, difference: float) -> "Dispersion":
        return Dispersion(tuple(batches.add(weight, difference) for batches in self.scales))

    def factor(self, variance: float, kurtosis: float = 0.0) -> float:
        """>= 1; 1 where requests are independent. variance: of one request. kurtosis: the excess of
        that of one interval's difference, 0 of normal ones."""
        if variance <= 0:
            return 1.0
        excess = max(batches.excess(variance, kurtosis, DOUBT) for batches in self.scales)
        return 1 + excess * (1 + CAUTION / self.scales[0].n) if excess else 1.0

    @property
    def variance(self) -> float:
        """Of one request, as single intervals vary. Raises ZeroDivisionError of fewer than two."""
        return self.scales[0].variance

    @property
    def lasting(self) -> float:
        """>= 1: how much more long spans vary than single intervals say; 1 where those are
        independent."""
        variance = self.variance
        if variance <= 0:
            return 1.0
        return 1 + max(b.excess(variance, 0.0, LASTING_DOUBT) for b in self.scales[1:])

    def last_margin(self, least_variance: float = 0.0) -> float:
        """What to add to the mean for an upper bound, of one look at a time that was set before; inf of
        too few batches. least_variance: of the mean."""
        batches = next((b for b in reversed(self.scales) if b.n >= LAST_BATCHES), None)
        if batches is None:
            return math.inf
        variance = max(least_variance, batches.variance / self.weight)
        return student(LAST_Z, batches.n - 1) * math.sqrt(variance)

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


UNDISPERSED = Dispersion()
