"""Scaling rule by KV-cache demand and queue length, with a trail of its steps.

    by KV, by queue -> the larger -> starting replicas -> up, bounded | down, slowly | hold -> bounds

The unit of demand is a KV-cache token: tokens in use, plus accepted prompt tokens that are not computed yet.
KV use alone cannot show a deficit beyond a full cache; waiting work in the same unit can.
"""

import math
from dataclasses import dataclass
from typing import Literal

from penstock.core.scaling import signals
from penstock.core.scaling.rule import Bounds, Decision, TrailEntry
from penstock.core.scaling.signals import EngineReading, Missing
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.service import ScalingSpec

# Replicas that a single decision may add beyond twice the ready ones.
EXTRA_STEP_UP = 4
# Seconds without a decision after which the scale-down delay starts again.
MAX_GAP_S = 15.0
# Tolerance for floating-point error in a replica count.
ROUNDING = 1e-9

ReasonCode = Literal[
    "Steady", "ScaleUp", "ScaleDown", "ScaleDownDelayed", "AtMaximum", "Bounded", "MetricsMissing"
]


@dataclass(frozen=True, slots=True)
class EngineSample:
    """Current metrics of an engine."""

    pod: str
    running: int
    waiting: int
    kv_usage: float  # 0..1
    kv_capacity_tokens: int  # > 0
    prefill_tokens_pending: int

    @classmethod
    def of(cls, pod: str, reading: EngineReading) -> "EngineSample":
        return cls(
            pod=pod,
            running=reading.running,
            waiting=reading.waiting,
            kv_usage=reading.kv_usage,
            kv_capacity_tokens=reading.kv_capacity_tokens,
            prefill_tokens_pending=reading.prefill_tokens_pending,
        )

    @property
    def demand_tokens(self) -> float:
        return self.kv_usage * self.kv_capacity_tokens + self.prefill_tokens_pending


@dataclass(frozen=True, slots=True)
class Observation:
    """Input of the rule. Each ready engine has an entry in samples or in missing.

    provisioned: desired replicas so far, ready or not. prometheus_note: names metrics that come from
    Prometheus.
    """

    samples: tuple[EngineSample, ...]
    missing: tuple[Missing, ...]
    provisioned: int
    prometheus_note: str | None = None

    @classmethod
    def of(cls, seen: signals.Observation) -> "Observation":
        """Extract the input of this rule from a full observation."""
        seen = seen.without_stale(signals.STALE_S)
        return cls(
            samples=tuple(
                EngineSample.of(pod.name, pod.reading)
                for pod in seen.ready
                if isinstance(pod.reading, EngineReading)
            ),
            missing=seen.missing,
            provisioned=seen.provisioned,
            prometheus_note=seen.prometheus_note,
        )

    @property
    def ready(self) -> int:
        return len(self.samples) + len(self.missing)


@dataclass(frozen=True, slots=True)
class ScalingState:
    """State of the rule.

    low_since_s: since when fewer replicas suffice. seen_s: time of the last decision.
    """

    low_since_s: float | None = None
    seen_s: float | None = None


@dataclass(frozen=True, slots=True)
class KvRule:
    """`decide` as a scaling rule that a recording can hold, with the settings of one service."""

    kv_utilization_target: float
    queue_length_target: int
    scale_down_delay_s: float
    period_s: float = 2.0

    def initial(self) -> ScalingState:
        return ScalingState()

    def decide(
        self,
        objectives: Objectives | None,
        bounds: Bounds,
        seen: signals.Observation,
        state: ScalingState,
    ) -> tuple[Decision, ScalingState]:
        """Decide at seen.now_s. The objectives are not used."""
        return decide(self.spec(bounds), Observation.of(seen), state, seen.now_s)

    def spec(self, bounds: Bounds) -> ScalingSpec:
        return ScalingSpec(
            mode="Active",
            min_replicas=bounds.min_replicas,
            max_replicas=bounds.max_replicas,
            kv_utilization_target=self.kv_utilization_target,
            queue_length_target=self.queue_length_target,
            scale_down_delay_s=self.scale_down_delay_s,
        )


def decide(
    spec: ScalingSpec, observation: Observation, state: ScalingState, now: float
) -> tuple[Decision, ScalingState]:
    """Decide on the replicas at `now`, in seconds on a monotonic clock.

    While metrics of an engine are missing the number may grow, but shrinks only by the bounds.
    """
    current = observation.provisioned
    low_since_s: float | None = None
    if not observation.samples:
        trail = [_hold(observation, "are held")]
    else:
        trail = [_by_kv(spec, observation), _by_queue(spec, observation)]
        need = max(trail, key=lambda entry: entry.replicas)
        trail.append(TrailEntry("need", need.replicas, need.note))
        if observation.prometheus_note is not None:
            trail.insert(0, TrailEntry("source", current, observation.prometheus_note))
        if need.replicas > current:
            trail.append(_starting(observation, need.replicas))
            trail.append(_up(observation, need.replicas))
        elif observation.missing:
            trail.append(_hold(observation, "are not fewer"))
        elif max(need.replicas, spec.min_replicas) < current:
            low_since_s = _low_since(state, now)
            trail.append(_down(spec, current, need.replicas, now - low_since_s))
            if trail[-1].replicas < current:
                low_since_s = now  # the delay restarts for the next scale-down
        else:
            trail.append(TrailEntry("steady", current, f"{current} are there"))
    trail.append(_bounds(spec, trail[-1].replicas))
    code = _code(trail, current)
    decision = Decision(
        trail[-1].replicas, _reason(trail), code, tuple(trail), code != "MetricsMissing"
    )
    return decision, ScalingState(low_since_s, now)


def _by_kv(spec: ScalingSpec, observation: Observation) -> TrailEntry:
    samples = observation.samples
    demand_tokens = sum(sample.demand_tokens for sample in samples)
    capacity_tokens = sum(sample.kv_capacity_tokens for sample in samples) / len(samples)
    needed = math.ceil(demand_tokens / (capacity_tokens * spec.kv_utilization_target) - ROUNDING)
    note = (
        f"KV demand of {demand_tokens:,.0f} tokens, at {spec.kv_utilization_target:.0%} of "
        f"{capacity_tokens:,.0f} per replica, needs {needed}"
    )
    return TrailEntry("kv", needed, note)


def _by_queue(spec: ScalingSpec, observation: Observation) -> TrailEntry:
    """Replicas at which queues are within the target; each new one also runs a batch."""
    measured = len(observation.samples)
    waiting = sum(sample.waiting for sample in observation.samples)
    batch = max(1, sum(sample.running for sample in observation.samples) // measured)
    excess = waiting - spec.queue_length_target * measured
    if excess <= 0:
        needed = math.ceil(waiting / spec.queue_length_target)
    else:
        needed = measured + math.ceil(excess / (spec.queue_length_target + batch))
    note = (
        f"{waiting} waiting requests, {measured} x {spec.queue_length_target} allowed; each replica runs "
        f"{batch}: {needed} needed"
    )
    return TrailEntry("queue", needed, note)


def _starting(observation: Observation, needed: int) -> TrailEntry:
    """Note the starting replicas. The number is absolute, so they are not requested twice."""
    current, ready = observation.provisioned, observation.ready
    note = f"{ready} are ready, {max(0, current - ready)} are starting: {needed - current} more"
    return TrailEntry("starting", needed, note)


def _up(observation: Observation, needed: int) -> TrailEntry:
    limit = max(2 * observation.ready + EXTRA_STEP_UP, observation.provisioned)
    if needed > limit:
        return TrailEntry("up", limit, f"at most {limit} while {observation.ready} are ready")
    return TrailEntry("up", needed, f"up from {observation.provisioned}")


def _low_since(state: ScalingState, now: float) -> float:
    if state.low_since_s is None or state.seen_s is None or now - state.seen_s > MAX_GAP_S:
        return now
    return state.low_since_s


def _down(spec: ScalingSpec, current: int, needed: int, low_s: float) -> TrailEntry:
    """Remove a replica if fewer have sufficed for the whole delay."""
    if low_s < spec.scale_down_delay_s:
        note = (
            f"{current} are held: fewer are enough for {low_s:.0f} of {spec.scale_down_delay_s:g} s"
        )
        return TrailEntry("delay", current, note)
    return TrailEntry("down", current - 1, f"fewer than {current} were enough for {low_s:.0f} s")


def _hold(observation: Observation, verdict: str) -> TrailEntry:
    current = observation.provisioned
    if not observation.missing:
        return TrailEntry("blind", current, f"no engine is ready; {current} replicas {verdict}")
    first, *others = observation.missing
    more = f" and {len(others)} more" if others else ""
    note = f"no usable metrics of {first.who} ({first.reason}){more}; {current} replicas {verdict}"
    return TrailEntry("blind", current, note)


def _bounds(spec: ScalingSpec, replicas: int) -> TrailEntry:
    if replicas > spec.max_replicas:
        return TrailEntry(
            "bounds", spec.max_replicas, f"bounded by maxReplicas {spec.max_replicas}"
        )
    if replicas < spec.min_replicas:
        return TrailEntry(
            "bounds", spec.min_replicas, f"bounded by minReplicas {spec.min_replicas}"
        )
    return TrailEntry("bounds", replicas, f"within {spec.min_replicas} to {spec.max_replicas}")


def _code(trail: list[TrailEntry], current: int) -> ReasonCode:
    *_, shaped, bounded = trail
    if shaped.step == "blind":
        return "MetricsMissing" if bounded.replicas == current else "Bounded"
    if bounded.replicas > current:
        return "ScaleUp" if shaped.step == "up" else "Bounded"
    if bounded.replicas < current:
        return "ScaleDown" if shaped.step == "down" else "Bounded"
    if shaped.replicas > bounded.replicas:
        return "AtMaximum"
    return "ScaleDownDelayed" if shaped.step == "delay" else "Steady"


def _reason(trail: list[TrailEntry]) -> str:
    """Reason as a sentence: the need, and each later step that changed or held the number."""
    notes = []
    before: int | None = None
    for entry in trail:
        is_verdict = entry.step in ("need", "blind", "delay", "down")
        is_change = entry.step in ("up", "bounds") and entry.replicas != before
        if is_verdict or is_change:
            notes.append(entry.note)
        before = entry.replicas
    return "; ".join(notes)
