"""Detects the end of the canary's warm-up, before which its latencies are not judged.

The warm-up ends when the canary's prefix-cache hit rate is comparable with its control's.
"""

from dataclasses import dataclass

from penstock.core.canary.arm import Arm
from penstock.core.canary.evidence import Block

# Weight of the earlier blocks per block of 10 s: the hit rate covers about the last two minutes.
DECAY = 0.92
# Largest difference of hit rates that counts as comparable.
MARGIN = 0.10
# Longest warm-up; a hit rate that is still lower by then is a regression, and is judged as one.
MAX_WARMUP_S = 300.0


@dataclass(frozen=True, slots=True)
class HitRate:
    """Exponentially weighted prefix-cache hit rate. Field names are stored."""

    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0

    def add(self, arm: Arm) -> "HitRate":
        return HitRate(
            DECAY * self.prompt_tokens + arm.prompt_tokens,
            DECAY * self.cached_tokens + arm.cached_tokens,
        )

    @property
    def share(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass(frozen=True, slots=True)
class WarmUp:
    """State of the warm-up. Field names are stored.

    is_over: stays true once set, and applies from the next block on, so that the decision does not depend
    on the latencies that it admits.
    """

    elapsed_s: float = 0.0
    canary: HitRate = HitRate()
    control: HitRate = HitRate()
    is_over: bool = False

    def add(self, block: Block) -> "WarmUp":
        if self.is_over:
            return self
        canary, control = self.canary.add(block.canary), self.control.add(block.control)
        elapsed_s = self.elapsed_s + block.length_s
        is_comparable = canary.share >= control.share - MARGIN
        has_data = bool(block.canary.requests and block.control.requests)
        return WarmUp(
            elapsed_s, canary, control, (has_data and is_comparable) or elapsed_s >= MAX_WARMUP_S
        )
