"""Evidence of one block of time: gateway counts of the canary and of its control, and pod faults."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from operator import add, sub
from typing import Any

from penstock.core.canary import tenants
from penstock.core.canary.moments import NOTHING, Moments
from penstock.core.canary.tenants import Tenants

# Upper bounds of the prompt-length bins; the last bin has none. With powers of two, 4 % of the variance of
# log length remains within a bin if lengths spread over a decade.
LENGTH_BOUNDS_TOKENS = (128, 256, 512, 1024, 2048, 4096, 8192)
NUM_LENGTH_BINS = len(LENGTH_BOUNDS_TOKENS) + 1
# Upper bounds of the bins of requests ahead: those that an engine had not started to answer when it
# received a request. Queue length explains most of a queue's effect on TTFT; finer bins explain little more.
QUEUE_BOUNDS = (0, 1, 3, 7, 15)
NUM_QUEUE_BINS = len(QUEUE_BOUNDS) + 1
NUM_BINS = NUM_LENGTH_BINS * NUM_QUEUE_BINS
# Upper bounds of the bins of concurrent requests of an engine: they share its steps, so TPOT grows with
# them, by a few percent for half as many more. A request counts in the bin of the mean of the start and the
# end of its answer, because concurrency on the canary grows while traffic moves there.
CONCURRENCY_BOUNDS = (0, 1, 2, 3, 5, 8, 12, 18, 27, 40, 60)
NUM_CONCURRENCY_BINS = len(CONCURRENCY_BOUNDS) + 1
NUM_TPOT_BINS = NUM_LENGTH_BINS * NUM_CONCURRENCY_BINS

Binned = tuple[Moments, ...]
EMPTY_BINS: Binned = (NOTHING,) * NUM_BINS
EMPTY_TPOT_BINS: Binned = (NOTHING,) * NUM_TPOT_BINS
EMPTY_QUEUE_BINS: Binned = (NOTHING,) * NUM_QUEUE_BINS


def ttft_bin(prompt_tokens: int, ahead: int) -> int:
    """Index of a request's TTFT bin: by prompt length, then by requests ahead."""
    length = bisect_left(LENGTH_BOUNDS_TOKENS, prompt_tokens)
    return length * NUM_QUEUE_BINS + queue_bin(ahead)


def queue_bin(ahead: int) -> int:
    """Index of a request's bin by requests ahead, for missed objectives."""
    return bisect_left(QUEUE_BOUNDS, ahead)


def tpot_bin(prompt_tokens: int, concurrent: float) -> int:
    """Index of a request's TPOT bin: by prompt length, then by concurrent requests."""
    length = bisect_left(LENGTH_BOUNDS_TOKENS, prompt_tokens)
    return length * NUM_CONCURRENCY_BINS + bisect_left(CONCURRENCY_BOUNDS, concurrent)


def merge_length_bins(bins: "Binned", length: int) -> Moments:
    """Sum of all bins of one prompt length, over requests ahead or concurrent requests."""
    each = len(bins) // NUM_LENGTH_BINS
    return reduce(Moments.plus, bins[length * each : (length + 1) * each])


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Counts and latency moments of one arm of the comparison. Field names are sent by gateways and stored.

    requests: finished, with failed ones. violations: requests that missed an objective, with failed ones.
    empty_outputs: successful answers without text. ttft: log seconds from the engine's receipt to the first
    token, by ttft_bin. tpot: log seconds per output token, by tpot_bin. overall: log seconds from the
    gateway's receipt to the first token, or to an answer that is not streamed. output: log of output tokens.
    missed: 1 for an answer that missed an objective, 0 for others, by queue_bin. prompt_tokens,
    cached_tokens: for the prefix-cache hit rate. tenants: by name, if the service distinguishes tenants.
    """

    requests: int = 0
    errors: int = 0
    violations: int = 0
    empty_outputs: int = 0
    ttft: Binned = EMPTY_BINS
    tpot: Binned = EMPTY_TPOT_BINS
    overall: Moments = NOTHING
    output: Moments = NOTHING
    missed: Binned = EMPTY_QUEUE_BINS
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tenants: Tenants = field(default_factory=dict)

    def plus(self, other: "Arm") -> "Arm":
        return self._combined(other, add, Moments.plus, tenants.plus)

    def increase_over(self, earlier: "Arm | None") -> "Arm":
        """The increase over an earlier reading; everything if the counters were reset in between."""
        if earlier is None or any(b > a for a, b in zip(self._n, earlier._n, strict=True)):
            return self
        return self._combined(earlier, sub, Moments.increase_over, tenants.increase_over)

    def _combined(
        self,
        other: "Arm",
        counters: Callable[[int, int], int],
        moments: Callable[[Moments, Moments], Moments],
        by_tenant: Callable[[Tenants, Tenants], Tenants],
    ) -> "Arm":
        """Combine each field with the other arm's, by the type of the field."""

        def by_bin(left: Binned, right: Binned) -> Binned:
            return tuple(moments(a, b) for a, b in zip(left, right, strict=True))

        combine: dict[Any, Callable[[Any, Any], Any]] = {
            int: counters, Moments: moments, Binned: by_bin, Tenants: by_tenant
        }  # fmt: skip
        return Arm(
            **{
                each.name: combine[each.type](getattr(self, each.name), getattr(other, each.name))
                for each in fields(self)
            }
        )

    def with_bounded_tenants(self) -> "Arm":
        """A copy with at most MAX_TENANTS tenants."""
        return replace(self, tenants=tenants.fold_tenants(self.tenants))

    @property
    def _n(self) -> tuple[int, ...]:
        """All counters that only grow until they are reset."""
        binned = (each for name in BINNED for each in getattr(self, name))
        moments = (*binned, *(getattr(self, name) for name in MOMENTS))
        return *(getattr(self, name) for name in COUNTERS), *(each.n for each in moments)


COUNTERS, MOMENTS, BINNED = (
    tuple(each.name for each in fields(Arm) if each.type == kind) for kind in (int, Moments, Binned)
)
"""Fields of an Arm, by kind."""
NO_REQUESTS = Arm()


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Faults of the canary's pods: containers in CrashLoopBackOff, OOM kills, outputs with NaN logits."""

    crash_loops: int = 0
    out_of_memory: int = 0
    nan_outputs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Evidence of one block of time.

    length_s: 10 to 30. control: pods of the stable revision as old as the canary's if there are any, else
    all stable pods.
    """

    length_s: float
    canary: Arm
    control: Arm
    faults: Faults = Faults()


@dataclass(frozen=True, slots=True)
class History:
    """Baseline error counts of stable over at most an hour before the canary; only rare events need it."""

    requests: int = 0
    errors: int = 0

    @property
    def error_share(self) -> float:
        return self.errors / self.requests if self.requests else 0.0


NO_HISTORY = History()
