"""What is known of a service at one moment: its pods, its engines' numbers, its gateway's.

Counters and histograms grow from the start of whoever counts, as Prometheus has them; what happened
in between is the difference of two looks. A number that cannot be had is a `Missing`, never zero.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, TypeVar

PodPhase = Literal["Starting", "Ready", "Draining"]
# Who gave an engine's numbers: itself, or a Prometheus that had scraped it.
Source = Literal["Engine", "Prometheus"]
# Numbers that are older by so many looks are those of another time, whoever still gives them.
STALE_S = 20.0


@dataclass(frozen=True, slots=True)
class Histogram:
    """bounds: upper ones, ascending, without the infinite one. counts: of each bucket by itself,
    one more than bounds. total: the sum of what was observed."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def increase_over(self, earlier: "Histogram | None") -> "Histogram":
        """What came after `earlier`; all of it when the counting began anew meanwhile."""
        if earlier is None or earlier.count > self.count:
            return self
        counts = tuple(b - a for a, b in zip(earlier.counts, self.counts, strict=True))
        return Histogram(self.bounds, counts, self.total - earlier.total)

    def plus(self, other: "Histogram") -> "Histogram":
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Histogram(self.bounds, counts, self.total + other.total)

    def quantile(self, q: float) -> float | None:
        """Between the bounds of its bucket, as Prometheus' histogram_quantile does; None of nothing.

        In the infinite bucket: the highest bound.
        """
        if not self.count:
            return None
        rank = q * self.count
        below = 0
        for (low, high), count in zip(pairwise((0.0, *self.bounds)), self.counts, strict=False):
            if count and below + count >= rank:
                return low + (high - low) * max(0.0, rank - below) / count
            below += count
        return self.bounds[-1]


@dataclass(frozen=True, slots=True)
class Missing:
    """Somebody who should have numbers, and whose numbers cannot be had or believed."""

    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """One engine's own account, of `at_s`.

    Gauges: running, waiting, kv_usage (0 to 1), prefill_tokens_pending (accepted and not computed).
    Counters: prompt_tokens and cached_tokens of prompts whose first token came, output_tokens,
    steps, finished requests. output_tokens_finished: of finished requests only. busy_s: while steps
    were computed; None of an engine that does not tell. corrupted: requests whose logits were not
    numbers; 0 of an engine that does not look.
    """

    at_s: float
    running: int
    waiting: int
    kv_usage: float
    kv_capacity_tokens: int
    prefill_tokens_pending: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    steps: int
    finished: int
    output_tokens_finished: int
    preemptions: int
    ttft_s: Histogram
    itl_s: Histogram
    busy_s: float | None = None
    corrupted: int = 0
    source: Source = "Engine"

    @property
    def kv_tokens(self) -> float:
        return self.kv_usage * self.kv_capacity_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReading:
    """What the gateways know of one service together, of `at_s`.

    Gauges: queued (held back, no engine has them), queued_prompt_tokens, in_flight (sent and not
    ended), in_flight_prefill_tokens (of those without a first token, less what is expected to be
    cached), oldest_wait_s. Counters: arrivals, prompt_tokens of all arrivals, ended,
    output_tokens of those that ended, attended_tokens (summed over these, the tokens before each),
    late (of those that ended, whose first token came after its objective; of whole answers, that took
    longer than both objectives allow), shed, failed. ttft_s and tpot_s as a client sees them.
    """

    at_s: float
    queued: int
    queued_prompt_tokens: int
    in_flight: int
    in_flight_prefill_tokens: int
    oldest_wait_s: float
    arrivals: int
    prompt_tokens: int
    ended: int
    output_tokens: int
    attended_tokens: int
    late: int
    shed: int
    failed: int
    ttft_s: Histogram
    tpot_s: Histogram


def attended_tokens(prompt_tokens: int, output_tokens: int) -> int:
    """As `GatewayReading` counts them, of one request."""
    return output_tokens * prompt_tokens + output_tokens * (output_tokens - 1) // 2


ReadingT = TypeVar("ReadingT", EngineReading, GatewayReading)


@dataclass(frozen=True, slots=True)
class PodView:
    """created_s and ready_s on the clock of `Observation.now_s`; reading: None until it is Ready.
    variant: empty where a service has none."""

    name: str
    phase: PodPhase
    created_s: float
    ready_s: float | None
    reading: EngineReading | Missing | None
    variant: str = ""


@dataclass(frozen=True)  # without slots, for what is asked for several times in a decision
class Observation:
    """provisioned: replicas that were asked for already, whether they are there or not; by_variant: of
    each variant, where there are some.

    gateway: None where no gateway reports, which is not the same as one that cannot be read.
    """

    now_s: float
    pods: tuple[PodView, ...]
    provisioned: int
    gateway: GatewayReading | Missing | None = None
    by_variant: Mapping[str, int] = field(default_factory=dict)

    def of_variant(self, variant: str) -> "Observation":
        """With its pods alone."""
        return replace(self, pods=tuple(pod for pod in self.pods if pod.variant == variant))

    @cached_property
    def ready(self) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if pod.phase == "Ready")

    @cached_property
    def starting(self) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if pod.phase == "Starting")

    @cached_property
    def readings(self) -> tuple[EngineReading, ...]:
        return tuple(p.reading for p in self.ready if isinstance(p.reading, EngineReading))

    @cached_property
    def missing(self) -> tuple[Missing, ...]:
        return tuple(pod.reading for pod in self.ready if isinstance(pod.reading, Missing))

    @cached_property
    def second_hand(self) -> str | None:
        """How many engines are known by Prometheus alone, as a note; None when none is."""
        told = [reading.at_s for reading in self.readings if reading.source == "Prometheus"]
        if not told:
            return None
        oldest_s = max(0.0, self.now_s - min(told))
        return (
            f"numbers of {len(told)} of {len(self.ready)} engines are Prometheus', up to "
            f"{oldest_s:.0f} s old"
        )

    @property
    def waiting(self) -> int:
        """Requests, at the gateway and in engines."""
        queued = self.gateway.queued if isinstance(self.gateway, GatewayReading) else 0
        return queued + sum(reading.waiting for reading in self.readings)

    @property
    def is_idle(self) -> bool:
        """No request waits or is under way."""
        gateway = self.gateway
        if isinstance(gateway, GatewayReading) and gateway.queued + gateway.in_flight:
            return False
        return not any(reading.running + reading.waiting for reading in self.readings)

    def fresh(self, most_s: float) -> "Observation":
        """The same, with what is older than that missing: it says how things were."""
        since_s = self.now_s - most_s
        if not any(reading.at_s < since_s for reading in self._dated()):
            return self
        gateway = self.gateway
        if isinstance(gateway, GatewayReading):
            gateway = _unless_old("gateway", gateway, since_s)
        pods = tuple(
            replace(pod, reading=_unless_old(pod.name, pod.reading, since_s))
            if isinstance(pod.reading, EngineReading)
            else pod
            for pod in self.pods
        )
        return replace(self, pods=pods, gateway=gateway)

    def _dated(self) -> Iterator[EngineReading | GatewayReading]:
        if isinstance(self.gateway, GatewayReading):
            yield self.gateway
        yield from self.readings


def _unless_old(who: str, reading: ReadingT, since_s: float) -> ReadingT | Missing:
    if reading.at_s >= since_s:
        return reading
    return Missing(who, f"its numbers are {since_s - reading.at_s:.0f} s too old")
