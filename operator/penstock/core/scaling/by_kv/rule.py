"""Scaling rule by KV-cache demand and queue length.

    need by KV demand -> queue -> up, limited | down, after a delay | held -> bounds

The unit of demand is a KV-cache token: tokens in use, plus accepted prompt tokens that are not computed yet.
KV use alone cannot show a deficit beyond a full cache; waiting work in the same unit can.
"""

import math
from dataclasses import dataclass

from penstock.core.scaling.blind import missing_engines, missing_metrics
from penstock.core.scaling.decisions import (
    bounded_decision,
    held_decision,
    held_entry,
    source_entries,
    with_idle,
)
from penstock.core.scaling.delays import ScaleDownDelay
from penstock.core.scaling.rule import Bounds, Decision, DecisionCode, TrailEntry
from penstock.core.scaling.signals import STALE_S, Observation
from penstock.core.spec.objectives import Objectives

# Replicas that a single decision may add beyond twice the ready ones.
EXTRA_STEP_UP = 4
# Tolerance for floating-point error in a replica count.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class KvRule:
    """Scaling rule without latency objectives. Its state is the scale-down delay.

    kv_utilization_target: fraction of each replica's KV cache. queue_length_target: waiting requests per
    replica. scale_down_delay_s: time for which fewer replicas must have been enough.
    """

    kv_utilization_target: float
    queue_length_target: int
    scale_down_delay_s: float
    period_s: float = 2.0

    def initial(self) -> ScaleDownDelay:
        return ScaleDownDelay()

    def decide(
        self,
        objectives: Objectives | None,
        bounds: Bounds,
        seen: Observation,
        state: ScaleDownDelay,
    ) -> tuple[Decision, ScaleDownDelay]:
        """Decide at seen.now_s. The objectives are not used.

        While metrics of an engine are missing the number may grow, but shrinks only by the bounds.
        """
        decision, state = self._decide(bounds, seen, state)
        return with_idle(bounds, seen, decision), state

    def _decide(
        self, bounds: Bounds, seen: Observation, state: ScaleDownDelay
    ) -> tuple[Decision, ScaleDownDelay]:
        """Decide on a service that is not at zero."""
        seen = seen.without_stale(STALE_S)
        if (why := missing_metrics(seen, uses_gateway=False)) is not None:
            return held_decision(bounds, seen, why), state.updated(seen.now_s, is_low=False)
        trail = [*source_entries(seen), self._need(seen)]
        trail.append(self._queue(seen, trail[-1].replicas))
        needed = trail[-1].replicas
        is_low = max(needed, bounds.min_replicas) < seen.provisioned and not seen.missing
        state = state.updated(seen.now_s, is_low=is_low)
        entry, code = self._step(seen, needed, state)
        if code == "ScaleDown":  # the delay starts again for the next scale-down
            state = ScaleDownDelay(seen.now_s, seen.now_s)
        trail.append(entry)
        return bounded_decision(bounds, seen.provisioned, entry.replicas, code, trail), state

    def _need(self, seen: Observation) -> TrailEntry:
        """Replicas that hold the KV demand at the target."""
        engines = seen.readings
        demand_tokens = sum(engine.demand_tokens for engine in engines)
        capacity_tokens = sum(engine.kv_capacity_tokens for engine in engines) / len(engines)
        needed = math.ceil(
            demand_tokens / (capacity_tokens * self.kv_utilization_target) - ROUNDING
        )
        note = (
            f"KV demand of {demand_tokens:,.0f} tokens, at {self.kv_utilization_target:.0%} of "
            f"{capacity_tokens:,.0f} per replica, needs {needed}"
        )
        return TrailEntry("need", needed, note)

    def _queue(self, seen: Observation, needed: int) -> TrailEntry:
        """The larger of `needed` and the replicas at which queues are within the target.

        Each new replica runs a batch.
        """
        engines = seen.readings
        measured, target = len(engines), self.queue_length_target
        waiting = sum(engine.waiting for engine in engines)
        batch = max(1, sum(engine.running for engine in engines) // measured)
        excess = waiting - target * measured
        if excess <= 0:
            by_queue = math.ceil(waiting / target)
        else:
            by_queue = measured + math.ceil(excess / (target + batch))
        note = (
            f"{waiting} requests wait at engines; the target allows {target} per replica, "
            f"{target * measured} now, and a further replica also runs {batch}: {by_queue} needed"
        )
        return TrailEntry("queue", max(needed, by_queue), note)

    def _step(
        self, seen: Observation, needed: int, state: ScaleDownDelay
    ) -> tuple[TrailEntry, DecisionCode]:
        """The step from the provisioned to the needed replicas, and its code."""
        current = seen.provisioned
        if needed > current:
            entry = _up(seen, needed)
            return entry, "ScaleUp" if entry.replicas > current else "Steady"
        if (why := missing_engines(seen)) is not None:
            return held_entry(current, why), "MetricsMissing"
        if state.low_since_s is None:
            return TrailEntry("steady", current, f"{current} are there"), "Steady"
        entry = state.entry(current, current - 1, self.scale_down_delay_s)
        return entry, "ScaleDown" if entry.step == "down" else "ScaleDownDelayed"


def _up(seen: Observation, needed: int) -> TrailEntry:
    """Limited scale-up. The number is absolute, so starting replicas are not requested twice."""
    current, ready = seen.provisioned, len(seen.ready)
    limit = max(2 * ready + EXTRA_STEP_UP, current)
    if needed > limit:
        return TrailEntry("up", limit, f"at most {limit} while {ready} are ready")
    return TrailEntry("up", needed, f"up from {current}, of which {ready} are ready")
