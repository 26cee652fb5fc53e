"""Counting observations into the buckets of a histogram."""

from bisect import bisect_left
from collections.abc import Sequence

from penstock.core.scaling.signals import Histogram


class HistogramCounter:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times

    def histogram(self) -> Histogram:
        return Histogram(self._bounds, tuple(self._counts), self._total)
