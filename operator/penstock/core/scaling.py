"""How many replicas there should be, and every step of the reasoning.

    demand -> by KV -> by queue -> the larger -> blind? -> down slowly -> slew -> bounds

The unit of demand is a token of KV cache: tokens in use, plus prompt tokens that are accepted and
not computed yet. Published rules that scale on KV use alone cannot see a deficit beyond a full
cache; waiting work in the same unit can.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.core.service import ScalingSpec

# One decision at most doubles the replicas, or adds this many where doubling is less.
MAX_STEP_UP = 4


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What one engine reported of itself."""

    pod: str
    running: int
    waiting: int
    kv_usage: float  # 0..1
    kv_capacity_tokens: int
    prefill_tokens_pending: int

    @property
    def demand_tokens(self) -> float:
        return self.kv_usage * self.kv_capacity_tokens + self.prefill_tokens_pending


@dataclass(frozen=True, slots=True)
class Missing:
    """An engine that is ready and whose numbers cannot be had or believed."""

    pod: str
    reason: str


@dataclass(frozen=True, slots=True)
class Observation:
    """provisioned: replicas asked for already, ready or not."""

    samples: tuple[EngineSample, ...]
    missing: tuple[Missing, ...]
    provisioned: int


@dataclass(frozen=True, slots=True)
class TrailEntry:
    step: str
    replicas: int
    note: str


@dataclass(frozen=True, slots=True)
class Decision:
    """valid: it rests on metrics of every ready engine."""

    desired: int
    reason: str
    reason_code: str
    valid: bool
    trail: tuple[TrailEntry, ...]


@dataclass(frozen=True, slots=True)
class ScalingState:
    """Since when fewer replicas have been enough, and the most that were wanted since."""

    low_since_s: float | None = None
    low_peak: int = 0


def decide(
    spec: ScalingSpec, observation: Observation, state: ScalingState, now: float
) -> tuple[Decision, ScalingState]:
    """The number of replicas at `now`, seconds on any clock that does not go back.

    Engines whose numbers are missing hold the number up: it may grow, it does not shrink.
    """
    trail: list[TrailEntry] = []
    current = observation.provisioned
    wanted, why = _want(spec, observation, trail)
    if wanted is None:
        desired, code = current, "MetricsMissing"
        state = ScalingState()
    elif (wanted := max(wanted, spec.min_replicas)) >= current:
        desired, code = _slew_up(current, wanted, trail), "Up" if wanted > current else "Steady"
        state = ScalingState()
    elif observation.missing:
        desired, code = current, "MetricsMissing"
        why = f"{_missing_note(observation)}; {current} replicas are held"
        trail.append(TrailEntry("blind", desired, why))
        state = ScalingState()
    else:
        desired, state = _down_slowly(spec, current, wanted, state, now, trail)
        code = "Down" if desired < current else "WaitingToGoDown"
    bounded = min(max(desired, spec.min_replicas), spec.max_replicas)
    if bounded != desired:
        bound = "maxReplicas" if bounded < desired else "minReplicas"
        why += f"; bounded by {bound} {bounded}"
    trail.append(
        TrailEntry("bounds", bounded, f"between {spec.min_replicas} and {spec.max_replicas}")
    )
    return Decision(bounded, why, code, code != "MetricsMissing", tuple(trail)), state


def _want(
    spec: ScalingSpec, observation: Observation, trail: list[TrailEntry]
) -> tuple[int | None, str]:
    """Replicas that the demand asks for, with the sentence that says why; None without metrics."""
    samples = observation.samples
    if not samples:
        note = _missing_note(observation) if observation.missing else "no engine is ready yet"
        why = f"{note}; {observation.provisioned} replicas are held"
        trail.append(TrailEntry("blind", observation.provisioned, why))
        return None, why
    by_kv, kv_note = _by_kv(spec, samples)
    trail.append(TrailEntry("kv", by_kv, kv_note))
    by_queue, queue_note = _by_queue(spec, samples)
    trail.append(TrailEntry("queue", by_queue, queue_note))
    return (by_kv, kv_note) if by_kv >= by_queue else (by_queue, queue_note)


def _by_kv(spec: ScalingSpec, samples: Sequence[EngineSample]) -> tuple[int, str]:
    demand_tokens = sum(sample.demand_tokens for sample in samples)
    capacity_tokens = sum(sample.kv_capacity_tokens for sample in samples) / len(samples)
    needed = math.ceil(demand_tokens / (capacity_tokens * spec.kv_utilization_target))
    note = (
        f"{demand_tokens:,.0f} tokens of KV demand need {needed} replicas of "
        f"{capacity_tokens:,.0f} tokens at {spec.kv_utilization_target:.0%}"
    )
    return needed, note


def _by_queue(spec: ScalingSpec, samples: Sequence[EngineSample]) -> tuple[int, str]:
    waiting = sum(sample.waiting for sample in samples)
    ready = len(samples)
    excess = waiting - spec.queue_target * ready
    if excess <= 0:
        return 0, f"{waiting} requests wait, {spec.queue_target} for each of {ready} are fine"
    needed = ready + math.ceil(excess / spec.queue_target)
    note = (
        f"{waiting} requests wait, {spec.queue_target} for each of {ready} ready replicas "
        f"are fine; {needed} replicas are needed"
    )
    return needed, note


def _slew_up(current: int, wanted: int, trail: list[TrailEntry]) -> int:
    limit = max(2 * current, current + MAX_STEP_UP)
    desired = min(wanted, limit)
    if desired < wanted:
        trail.append(TrailEntry("slew", desired, f"{wanted} wanted, {limit} in one step"))
    return desired


def _down_slowly(
    spec: ScalingSpec,
    current: int,
    wanted: int,
    state: ScalingState,
    now: float,
    trail: list[TrailEntry],
) -> tuple[int, ScalingState]:
    """One replica fewer when that has been enough for the whole delay."""
    since_s = now if state.low_since_s is None else state.low_since_s
    peak = max(wanted, state.low_peak)
    waited_s = now - since_s
    if waited_s < spec.scale_down_delay_s:
        note = f"{wanted} wanted for {waited_s:.0f} s of {spec.scale_down_delay_s:.0f} s"
        trail.append(TrailEntry("hold", current, note))
        return current, ScalingState(since_s, peak)
    desired = max(peak, current - 1)
    trail.append(TrailEntry("down", desired, f"at most {peak} wanted for {waited_s:.0f} s"))
    # The next one is earned from now on: what follows is measured on the replicas that are left.
    return desired, replace(state, low_since_s=now, low_peak=0)


def _missing_note(observation: Observation) -> str:
    first = observation.missing[0]
    others = len(observation.missing) - 1
    more = f" and {others} more" if others else ""
    return f"no usable metrics of {first.pod} ({first.reason}){more}"
