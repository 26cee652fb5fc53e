"""Observation of a service at one time: pods, engine metrics and gateway metrics.

Counters and histograms are cumulative from the start of their process, as in Prometheus; an interval is the
difference of two scrapes. A metric that cannot be scraped is a `Missing`, never zero.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar

from penstock.core.scaling.histogram import Histogram

PodPhase = Literal["Starting", "Ready", "Draining"]
# Origin of an engine's metrics: the engine itself, or a Prometheus that scraped it.
Source = Literal["Engine", "Prometheus"]
# Seconds. Older metrics count as missing, whatever their origin.
STALE_S = 20.0


@dataclass(frozen=True, slots=True)
class Missing:
    """Metrics that are unavailable or not credible. who: an engine pod, or the gateway."""

    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Settings of an engine's KV cache, as it reports them. None: not reported.

    dtype: in the runtime's spelling. prefix_caching: whether blocks of finished requests are reused.
    """

    block_size: int | None = None
    dtype: str | None = None
    prefix_caching: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """Metrics of an engine at `at_s`. From prompt_tokens to itl_s they are counters, before that gauges."""

    at_s: float
    running: int
    waiting: int
    kv_usage: float  # 0 to 1
    kv_capacity_tokens: int
    prefill_tokens_pending: int  # accepted, not yet computed
    # prompt_tokens, cached_tokens: of prompts with a first token
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    steps: int
    finished: int  # requests
    output_tokens_finished: int  # of finished requests only
    preemptions: int
    ttft_s: Histogram
    itl_s: Histogram
    busy_s: float | None = None  # time in steps; None if the engine does not report it
    corrupted: int = 0  # requests with NaN logits; 0 if the engine does not check
    source: Source = "Engine"
    # max_num_seqs, max_num_batched_tokens: limits of one step; None if the engine does not report them
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    cache: CacheSettings = CacheSettings()

    @property
    def kv_tokens(self) -> float:
        return self.kv_usage * self.kv_capacity_tokens

    @property
    def demand_tokens(self) -> float:
        """KV-cache demand: tokens in use, and accepted prompt tokens that are not computed yet."""
        return self.kv_tokens + self.prefill_tokens_pending


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReading:
    """Metrics of a service at `at_s`, summed over all gateways. From arrivals on they are counters."""

    at_s: float
    queued: int  # at the gateway, not sent
    queued_prompt_tokens: int
    in_flight: int  # sent, not ended
    # Prompt tokens of requests without a first token, less expected prefix-cache hits
    in_flight_prefill_tokens: int
    oldest_wait_s: float
    arrivals: int
    prompt_tokens: int  # of all arrivals
    ended: int
    output_tokens: int  # of ended requests
    attended_tokens: int  # sum over these tokens of the tokens before each
    # Ended requests whose first token missed its objective; without streaming, those that took longer than
    # both objectives allow
    late: int
    shed: int
    failed: int
    # ttft_s, tpot_s: as measured by the gateway for its clients
    ttft_s: Histogram
    tpot_s: Histogram


def attended_tokens(prompt_tokens: int, output_tokens: int) -> int:
    """Attended tokens of one request, as in `GatewayReading`: the sum of context lengths of its outputs."""
    return output_tokens * prompt_tokens + output_tokens * (output_tokens - 1) // 2


ReadingT = TypeVar("ReadingT", EngineReading, GatewayReading)


@dataclass(frozen=True, slots=True)
class PodView:
    """Engine pod. Its times are on the clock of `Observation.now_s`."""

    name: str
    phase: PodPhase
    created_s: float
    ready_s: float | None
    reading: EngineReading | Missing | None  # None until Ready
    variant: str = ""  # empty for a service without variants
    fetch_s: float = 0.0  # time that the fetch of its model took; 0 without one


@dataclass(frozen=True)  # no slots: cached properties need a __dict__
class Observation:
    """Observation of a service at now_s.

    provisioned: desired replicas so far, ready or not. by_variant: the same by variant. gateway: None if
    there is no gateway; Missing if one cannot be scraped.
    """

    now_s: float
    pods: tuple[PodView, ...]
    provisioned: int
    gateway: GatewayReading | Missing | None = None
    by_variant: Mapping[str, int] = field(default_factory=dict)

    def of_variant(self, variant: str) -> "Observation":
        """Copy with the pods of one variant."""
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
    def prometheus_note(self) -> str | None:
        """Note on the engines whose metrics come from Prometheus; None if there are none."""
        times_s = [reading.at_s for reading in self.readings if reading.source == "Prometheus"]
        if not times_s:
            return None
        oldest_s = max(0.0, self.now_s - min(times_s))
        return (
            f"numbers of {len(times_s)} of {len(self.ready)} engines are Prometheus', up to "
            f"{oldest_s:.0f} s old"
        )

    @property
    def waiting(self) -> int:
        """Waiting requests at the gateway and in engines."""
        queued = self.gateway.queued if isinstance(self.gateway, GatewayReading) else 0
        return queued + sum(reading.waiting for reading in self.readings)

    @property
    def is_idle(self) -> bool:
        """Whether no request waits or runs."""
        gateway = self.gateway
        if isinstance(gateway, GatewayReading) and gateway.queued + gateway.in_flight:
            return False
        return not any(reading.running + reading.waiting for reading in self.readings)

    def without_stale(self, most_s: float) -> "Observation":
        """Copy in which readings older than most_s are Missing."""
        since_s = self.now_s - most_s
        if not any(reading.at_s < since_s for reading in self._dated()):
            return self
        gateway = self.gateway
        if isinstance(gateway, GatewayReading):
            gateway = _missing_if_stale("gateway", gateway, since_s)
        pods = tuple(
            replace(pod, reading=_missing_if_stale(pod.name, pod.reading, since_s))
            if isinstance(pod.reading, EngineReading)
            else pod
            for pod in self.pods
        )
        return replace(self, pods=pods, gateway=gateway)

    def _dated(self) -> Iterator[EngineReading | GatewayReading]:
        if isinstance(self.gateway, GatewayReading):
            yield self.gateway
        yield from self.readings


def _missing_if_stale(who: str, reading: ReadingT, since_s: float) -> ReadingT | Missing:
    if reading.at_s >= since_s:
        return reading
    return Missing(who, f"its numbers are {since_s - reading.at_s:.0f} s too old")
