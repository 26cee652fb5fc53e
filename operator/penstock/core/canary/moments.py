"""Moments of a quantity: count, sum and sum of squares."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, sum and sum of squares of values; field names are sent by gateways and stored.

    The values are natural logarithms of a quantity, so that a difference of means is a relative change, or
    0 and 1, so that the mean is a share.
    """

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, logs: Iterable[float]) -> "Moments":
        values = tuple(logs)
        return cls(len(values), math.fsum(values), math.fsum(v * v for v in values))

    def plus(self, other: "Moments") -> "Moments":
        return Moments(self.n + other.n, self.total + other.total, self.squares + other.squares)

    def increase_over(self, earlier: "Moments") -> "Moments":
        """The moments of the values added since `earlier`."""
        if self.n == earlier.n:
            return NOTHING
        squares = max(0.0, self.squares - earlier.squares)  # rounding may make it negative
        return Moments(self.n - earlier.n, self.total - earlier.total, squares)

    def centered_at(self, level: float) -> "Moments":
        """The moments after `level` is subtracted from each value."""
        total = self.total - self.n * level
        squares = self.squares - level * (2 * self.total - self.n * level)
        return Moments(self.n, total, max(0.0, squares))

    @property
    def mean(self) -> float:
        return self.total / self.n if self.n else 0.0


NOTHING = Moments()
