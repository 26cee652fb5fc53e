"""A canary's latencies beside its control's, for prompts of each length."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.canary.evidence import LENGTH_BOUNDS_TOKENS, Arm, of_length
from penstock.core.canary.moments import Moments


@dataclass(frozen=True, slots=True)
class Pair:
    """Geometric means in seconds, and of how many requests; None of none."""

    canary_s: float | None
    control_s: float | None
    canary_n: int
    control_n: int

    @property
    def effect(self) -> float | None:
        """How much larger the canary's is: 0.2 is 20 %."""
        if self.canary_s is None or self.control_s is None:
            return None
        return self.canary_s / self.control_s - 1


@dataclass(frozen=True, slots=True)
class Bin:
    """Prompts of more than low_tokens and up to high_tokens; None: without end."""

    low_tokens: int
    high_tokens: int | None
    ttft: Pair
    tpot: Pair


def by_bin(canary: Arm, control: Arm) -> Iterator[Bin]:
    """Those that have requests on either side."""
    lows, highs = (0, *LENGTH_BOUNDS_TOKENS), (*LENGTH_BOUNDS_TOKENS, None)
    for index, (low, high) in enumerate(zip(lows, highs, strict=True)):
        ttft = pair(of_length(canary.ttft, index), of_length(control.ttft, index))
        if ttft.canary_n or ttft.control_n:
            tpot = pair(of_length(canary.tpot, index), of_length(control.tpot, index))
            yield Bin(low, high, ttft, tpot)


def pair(canary: Moments, control: Moments) -> Pair:
    """Of log seconds on both sides."""
    return Pair(_mean_s(canary), _mean_s(control), canary.n, control.n)


def _mean_s(logs: Moments) -> float | None:
    return math.exp(logs.mean) if logs.n else None
