"""What the gateways saw of the canary, and of what it is compared with, in one block of time."""

from bisect import bisect_left
from dataclasses import dataclass

from penstock.core.canary.moments import NOTHING, Moments

# Upper bounds of the prompt-length bins; the last bin has none. Powers of two leave a bin a
# twenty-fifth of the variance of log length where lengths spread over a decade.
LENGTH_BOUNDS_TOKENS = (128, 256, 512, 1024, 2048, 4096, 8192)
NUM_BINS = len(LENGTH_BOUNDS_TOKENS) + 1

Binned = tuple[Moments, ...]
EMPTY_BINS: Binned = (NOTHING,) * NUM_BINS


def length_bin(prompt_tokens: int) -> int:
    return bisect_left(LENGTH_BOUNDS_TOKENS, prompt_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side of the comparison.

    requests: that ended, failed ones included. violations: that missed an objective, failed ones
    included. empty_outputs: that succeeded with no token. ttft, tpot: log seconds per prompt-length
    bin. output: log of output tokens. prompt_tokens and cached_tokens: for the prefix-hit rate.
    """

    requests: int = 0
    errors: int = 0
    violations: int = 0
    empty_outputs: int = 0
    ttft: Binned = EMPTY_BINS
    tpot: Binned = EMPTY_BINS
    output: Moments = NOTHING
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What the canary's pods report: containers in CrashLoopBackOff, kills for memory, and outputs
    that are not numbers."""

    crash_loops: int = 0
    out_of_memory: int = 0
    nan_outputs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """length_s: 10 to 30. control: pods of the stable revision as old as the canary's where there
    are some, else all of stable."""

    length_s: float
    canary: Arm
    control: Arm
    faults: Faults = Faults()


@dataclass(frozen=True, slots=True)
class History:
    """What stable did before the canary came, an hour of it at best. Only rare events need it."""

    requests: int = 0
    errors: int = 0

    @property
    def error_share(self) -> float:
        return self.errors / self.requests if self.requests else 0.0


NO_HISTORY = History()
