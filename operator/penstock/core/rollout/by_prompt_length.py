"""Compares the latencies of a canary with its control's by prompt length, for reports."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.canary.arm import Arm
from penstock.core.canary.bins import LENGTH_BOUNDS_TOKENS, merge_length_bins
from penstock.core.canary.moments import Moments


@dataclass(frozen=True, slots=True)
class MeanPair:
    """Geometric mean latencies in seconds and numbers of requests; None without requests."""

    canary_s: float | None
    control_s: float | None
    canary_n: int
    control_n: int

    @property
    def effect(self) -> float | None:
        """Relative difference of the canary's mean: 0.2 means 20 % slower. None if a mean is missing."""
        if self.canary_s is None or self.control_s is None:
            return None
        return self.canary_s / self.control_s - 1


@dataclass(frozen=True, slots=True)
class LengthBin:
    """Latencies of prompts longer than low_tokens, up to high_tokens inclusive (None: no limit)."""

    low_tokens: int
    high_tokens: int | None
    ttft: MeanPair
    tpot: MeanPair


def compare_by_prompt_length(canary: Arm, control: Arm) -> Iterator[LengthBin]:
    """Yield the bins of prompt length with requests on either side, shortest prompts first."""
    lows, highs = (0, *LENGTH_BOUNDS_TOKENS), (*LENGTH_BOUNDS_TOKENS, None)
    for index, (low, high) in enumerate(zip(lows, highs, strict=True)):
        ttft = mean_pair(
            merge_length_bins(canary.ttft, index), merge_length_bins(control.ttft, index)
        )
        if ttft.canary_n or ttft.control_n:
            tpot = mean_pair(
                merge_length_bins(canary.tpot, index), merge_length_bins(control.tpot, index)
            )
            yield LengthBin(low, high, ttft, tpot)


def mean_pair(canary: Moments, control: Moments) -> MeanPair:
    """Convert moments of log seconds of both sides to geometric means."""
    return MeanPair(_mean_s(canary), _mean_s(control), canary.n, control.n)


def _mean_s(logs: Moments) -> float | None:
    return math.exp(logs.mean) if logs.n else None
