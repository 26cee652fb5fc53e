"""Cumulative histograms, and the counter that fills one."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative histogram. bounds: upper bounds, ascending, without infinity.

    counts: per bucket, one more than bounds. total: sum of the observed values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def increase_over(self, earlier: "Histogram | None") -> "Histogram":
        """Increase since `earlier`; the whole histogram if the counters were reset."""
        if earlier is None or earlier.count > self.count:
            return self
        counts = tuple(b - a for a, b in zip(earlier.counts, self.counts, strict=True))
        return Histogram(self.bounds, counts, self.total - earlier.total)

    def plus(self, other: "Histogram") -> "Histogram":
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Histogram(self.bounds, counts, self.total + other.total)

    def quantile(self, q: float) -> float | None:
        """Quantile, interpolated as by Prometheus' histogram_quantile; None without observations.

        The highest bound if it lies in the infinite bucket.
        """
        if not self.count:
            return None
        rank = q * self.count
        below = 0
        for (low, high), count in zip(pairwise((0.0, *self.bounds)), self.counts, strict=False):
            if count and below + count >= rank:
                return low + (high - low) * max(0.0, rank - below) / count
            below += count
        return self.bounds[-1]


class HistogramCounter:
    """Counts observations into buckets. bounds: upper bounds, ascending, without infinity."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times

    def histogram(self) -> Histogram:
        return Histogram(self._bounds, tuple(self._counts), self._total)
