"""95 % confidence intervals of shares and quantiles."""

import math
from collections.abc import Callable

LEVEL = 0.95


def of_share(count: int, runs: int) -> tuple[float, float]:
    """Exact interval of a share (Clopper and Pearson 1934); covers at least 95 %, also at 0 of n."""
    tail = (1 - LEVEL) / 2
    low = 0.0 if count == 0 else _root(lambda p: 1 - _below(count - 1, runs, p) - tail)
    high = 1.0 if count == runs else _root(lambda p: tail - _below(count, runs, p))
    return low, high


def of_quantile(ascending: list[float], q: float) -> tuple[float, float]:
    """Interval of a quantile between order statistics, by the normal approximation of their ranks."""
    n = len(ascending)
    half = 1.96 * math.sqrt(n * q * (1 - q))
    low, high = math.floor(n * q - half), math.ceil(n * q + half)
    return ascending[max(0, low)], ascending[min(n - 1, high)]


def _below(count: int, runs: int, p: float) -> float:
    """Binomial probability P(X <= count)."""
    return math.fsum(
        math.exp(
            math.lgamma(runs + 1)
            - math.lgamma(k + 1)
            - math.lgamma(runs - k + 1)
            + k * math.log(p)
            + (runs - k) * math.log1p(-p)
        )
        for k in range(count + 1)
    )


def _root(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
