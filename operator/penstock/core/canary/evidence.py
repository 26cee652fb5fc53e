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

COUNTERS = (
    "requests", "errors", "violations", "empty_outputs", "prompt_tokens", "cached_tokens",
)  # fmt: skip


def length_bin(prompt_tokens: int) -> int:
    return bisect_left(LENGTH_BOUNDS_TOKENS, prompt_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side of the comparison.

    requests: that ended, failed ones included. violations: that missed an objective, failed ones
    included. empty_outputs: that succeeded and said nothing. ttft, tpot: log seconds per
    prompt-length bin. output: log of output tokens. prompt_tokens and cached_tokens: for the
    prefix-hit rate.
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

    def plus(self, other: "Arm") -> "Arm":
        return Arm(
            ttft=tuple(a.plus(b) for a, b in zip(self.ttft, other.ttft, strict=True)),
            tpot=tuple(a.plus(b) for a, b in zip(self.tpot, other.tpot, strict=True)),
            output=self.output.plus(other.output),
            **{name: getattr(self, name) + getattr(other, name) for name in COUNTERS},
        )

    def since(self, earlier: "Arm | None") -> "Arm":
        """What came after `earlier`; all of it when the counting began anew meanwhile."""
        if earlier is None or any(b > a for a, b in zip(self._n, earlier._n, strict=True)):
            return self
        return Arm(
            ttft=tuple(a.since(b) for a, b in zip(self.ttft, earlier.ttft, strict=True)),
            tpot=tuple(a.since(b) for a, b in zip(self.tpot, earlier.tpot, strict=True)),
            output=self.output.since(earlier.output),
            **{name: getattr(self, name) - getattr(earlier, name) for name in COUNTERS},
        )

    @property
    def _n(self) -> tuple[int, ...]:
        """All that only grows while the counting goes on."""
        moments = (*self.ttft, *self.tpot, self.output)
        return *(getattr(self, name) for name in COUNTERS), *(m.n for m in moments)


NO_REQUESTS = Arm()


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
