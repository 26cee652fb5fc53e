"""How much more block differences vary than independent requests would: the design effect.

Queues make neighbours in time alike, so a block of ten requests may be worth three. Differences are
batched at several scales; a scale that varies more than noise explains divides the information.
"""

import math
from dataclasses import dataclass

# One interval, two and four: correlation over a few minutes shows; what is slower than that looks
# like a regression to any test that has an hour.
SCALES = (1, 2, 4)
# How strongly an excess is doubted, in units of its own sampling variance. At 0 the noise of the
# estimate costs honest canaries a tenth of their information, at 10 real correlation goes unseen.
DOUBT = 2.0


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

    def excess(self, variance: float) -> float:
        """How much more than `variance` per request the batches vary, as a share of it, >= 0.

        The share is shrunk by how well it is known: (n - 1) times it is chi-square.
        """
        if self.n < 3 or variance <= 0:
            return 0.0
        within = self.squares - self.total * self.total / self.weight
        return shrunk(within / (variance * (self.n - 1)) - 1, 2 / (self.n - 1))


def shrunk(excess: float, sampling_variance: float) -> float:
    """An excess that is large against its own noise is believed, a small one is not."""
    if excess <= 0:
        return 0.0
    return excess * excess * excess / (excess * excess + DOUBT * sampling_variance)


@dataclass(frozen=True, slots=True)
class Dispersion:
    scales: tuple[Batches, ...] = tuple(Batches(scale) for scale in SCALES)

    def add(self, weight: float, difference: float) -> "Dispersion":
        return Dispersion(tuple(batches.add(weight, difference) for batches in self.scales))

    def factor(self, variance: float) -> float:
        """>= 1; 1 where requests are independent. variance: of one request's log."""
        return 1 + max(batches.excess(variance) for batches in self.scales)

    @property
    def weight(self) -> float:
        return self.scales[0].weight

    @property
    def mean(self) -> float:
        finest = self.scales[0]
        return finest.total / finest.weight if finest.weight else math.nan


UNDISPERSED = Dispersion()
