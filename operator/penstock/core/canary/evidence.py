"""What the gateways saw of the canary, and of what it is compared with, in one block of time."""

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import reduce

from penstock.core.canary import tenants
from penstock.core.canary.moments import NOTHING, Moments
from penstock.core.canary.tenants import Tenants

# Upper bounds of the prompt-length bins; the last bin has none. Powers of two leave a bin a
# twenty-fifth of the variance of log length where lengths spread over a decade.
LENGTH_BOUNDS_TOKENS = (128, 256, 512, 1024, 2048, 4096, 8192)
NUM_LENGTHS = len(LENGTH_BOUNDS_TOKENS) + 1
# Of the requests that an engine had been given and not begun to answer, when it was given one more.
# How long a queue is explains most of what it does to a latency; finer bins explain hardly more.
AHEAD_BOUNDS = (0, 1, 3, 7, 15)
NUM_AHEADS = len(AHEAD_BOUNDS) + 1
NUM_BINS = NUM_LENGTHS * NUM_AHEADS
# Of the requests that an engine had been given and not ended: what it writes at once shares its steps, and
# the time of a step grows with them. Half as many more are a few percent of TPOT. Their mean at the begin
# and the end of an answer: while traffic moves to the canary, its answers end beside more than they began.
BESIDE_BOUNDS = (0, 1, 2, 3, 5, 8, 12, 18, 27, 40, 60)
NUM_BESIDES = len(BESIDE_BOUNDS) + 1
NUM_TPOT_BINS = NUM_LENGTHS * NUM_BESIDES

Binned = tuple[Moments, ...]
EMPTY_BINS: Binned = (NOTHING,) * NUM_BINS
EMPTY_TPOT_BINS: Binned = (NOTHING,) * NUM_TPOT_BINS
EMPTY_AHEAD_BINS: Binned = (NOTHING,) * NUM_AHEADS

COUNTERS = (
    "requests", "errors", "violations", "empty_outputs", "prompt_tokens", "cached_tokens",
)  # fmt: skip


def bin_of(prompt_tokens: int, ahead: int) -> int:
    """Of TTFT. Bins of one prompt length stand together."""
    length = bisect_left(LENGTH_BOUNDS_TOKENS, prompt_tokens)
    return length * NUM_AHEADS + ahead_bin_of(ahead)


def ahead_bin_of(ahead: int) -> int:
    """Of misses."""
    return bisect_left(AHEAD_BOUNDS, ahead)


def tpot_bin_of(prompt_tokens: int, beside: float) -> int:
    """Likewise."""
    length = bisect_left(LENGTH_BOUNDS_TOKENS, prompt_tokens)
    return length * NUM_BESIDES + bisect_left(BESIDE_BOUNDS, beside)


def of_length(bins: "Binned", length: int) -> Moments:
    """All of one bin of prompt lengths, whatever the engine was doing."""
    each = len(bins) // NUM_LENGTHS
    return reduce(Moments.plus, bins[length * each : (length + 1) * each])


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side of the comparison.

    requests: that ended, failed ones included. violations: that missed an objective, failed ones
    included. empty_outputs: that succeeded and said nothing. ttft: log seconds since the engine was
    given the request, per bin of prompt length and of requests ahead. tpot: log seconds, per bin of
    prompt length and of requests beside. overall: log seconds to the first token since the request
    came. output: log of output tokens. missed: of answers, 1 where an objective was missed and 0 where
    all were met, per bin of requests ahead.
    prompt_tokens and cached_tokens: for the prefix-hit rate. tenants: by name, where they are asked for.
    """

    requests: int = 0
    errors: int = 0
    violations: int = 0
    empty_outputs: int = 0
    ttft: Binned = EMPTY_BINS
    tpot: Binned = EMPTY_TPOT_BINS
    overall: Moments = NOTHING
    output: Moments = NOTHING
    missed: Binned = EMPTY_AHEAD_BINS
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tenants: Tenants = field(default_factory=dict)

    def plus(self, other: "Arm") -> "Arm":
        return Arm(
            ttft=tuple(a.plus(b) for a, b in zip(self.ttft, other.ttft, strict=True)),
            tpot=tuple(a.plus(b) for a, b in zip(self.tpot, other.tpot, strict=True)),
            overall=self.overall.plus(other.overall),
            output=self.output.plus(other.output),
            missed=tuple(a.plus(b) for a, b in zip(self.missed, other.missed, strict=True)),
            tenants=tenants.plus(self.tenants, other.tenants),
            **{name: getattr(self, name) + getattr(other, name) for name in COUNTERS},
        )

    def since(self, earlier: "Arm | None") -> "Arm":
        """What came after `earlier`; all of it when the counting began anew meanwhile."""
        if earlier is None or any(b > a for a, b in zip(self._n, earlier._n, strict=True)):
            return self
        return Arm(
            ttft=tuple(a.since(b) for a, b in zip(self.ttft, earlier.ttft, strict=True)),
            tpot=tuple(a.since(b) for a, b in zip(self.tpot, earlier.tpot, strict=True)),
            overall=self.overall.since(earlier.overall),
            output=self.output.since(earlier.output),
            missed=tuple(a.since(b) for a, b in zip(self.missed, earlier.missed, strict=True)),
            tenants=tenants.since(self.tenants, earlier.tenants),
            **{name: getattr(self, name) - getattr(earlier, name) for name in COUNTERS},
        )

    def of_most_tenants(self) -> "Arm":
        """The same, with a bounded number of them."""
        return replace(self, tenants=tenants.folded(self.tenants))

    @property
    def _n(self) -> tuple[int, ...]:
        """All that only grows while the counting goes on."""
        moments = (*self.ttft, *self.tpot, *self.missed, self.overall, self.output)
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
