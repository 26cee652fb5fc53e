"""Whether the canary's prefix cache is as full as its control's: before that, latency is not judged."""

from dataclasses import dataclass

from penstock.core.canary.evidence import Arm, Block

# Old blocks fade: at ten seconds a block the hit rate is that of the last two minutes.
FADING = 0.92
# Hit rates so close are comparable.
MARGIN = 0.10
# A cache that is still emptier by then will stay so, and that is a regression to be judged.
LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class HitRate:
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0

    def add(self, arm: Arm) -> "HitRate":
        return HitRate(
            FADING * self.prompt_tokens + arm.prompt_tokens,
            FADING * self.cached_tokens + arm.cached_tokens,
        )

    @property
    def share(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass(frozen=True, slots=True)
class WarmUp:
    """is_over: once true it stays so, and counts from the next block on: what decides it is seen
    before the latencies that it lets in."""

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
            elapsed_s, canary, control, (has_data and is_comparable) or elapsed_s >= LIMIT_S
        )
