"""The Kubernetes HorizontalPodAutoscaler v2, and KEDA around it, for any source of metrics."""

from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from penstock.core.scaling.rule import Bounds, Decision, TrailEntry
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.answer import decided, held, unchanged
from penstock.sim.baselines.hpa.behavior import DEFAULT, Behavior, Stamped, limited, stabilized
from penstock.sim.baselines.hpa.metric import AverageMetric, Metric

SeriesT = TypeVar("SeriesT")

SYNC_PHASE_S = 10.0
"""Offset of syncs to scrapes: with both every 15 s, a value is 10 s old when it is used."""


class Source(Protocol[SeriesT]):
    """Prometheus with its rules: `scrape` adds samples to the series, `metrics` evaluates the query."""

    def initial(self) -> SeriesT: ...

    def scrape(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, series: SeriesT
    ) -> SeriesT: ...

    def metrics(self, series: SeriesT) -> tuple[Metric, ...]: ...


@dataclass(frozen=True, slots=True)
class Activation:
    """KEDA's activation between 0 and 1 replicas, evaluated at each sync of the HPA."""

    threshold: float = 0.0
    cooldown_s: float = 300.0


@dataclass(frozen=True, slots=True)
class HpaState(Generic[SeriesT]):
    """State of the HPA: series, next times, recommendations and changes of replicas."""

    series: SeriesT
    next_scrape_s: float | None = None
    next_sync_s: float | None = None
    recommendations: tuple[Stamped, ...] = ()
    changes: tuple[Stamped, ...] = ()
    active_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hpa(Generic[SeriesT]):
    """HPA that scrapes every scrape_s and decides every sync_s on the last scrape.

    Without activation it neither reaches nor leaves zero replicas.
    """

    source: Source[SeriesT]
    behavior: Behavior = DEFAULT
    tolerance: float = 0.1
    scrape_s: float = 15.0
    sync_s: float = 15.0
    period_s: float = 5.0
    activation: Activation | None = None

    def initial(self) -> HpaState[SeriesT]:
        return HpaState(self.source.initial())

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: HpaState[SeriesT]
    ) -> tuple[Decision, HpaState[SeriesT]]:
        now = seen.now_s
        if state.next_sync_s is None:
            state = replace(state, next_scrape_s=now, next_sync_s=now + SYNC_PHASE_S)
        if _has_passed(state.next_sync_s, now):
            decision, state = self._sync(bounds, seen, state)
            state = replace(state, next_sync_s=now + self.sync_s)
        else:
            decision = unchanged(bounds, seen, "Between two syncs of the HPA.", "BetweenSyncs")
        if _has_passed(state.next_scrape_s, now):
            series = self.source.scrape(objectives, bounds, seen, state.series)
            state = replace(state, series=series, next_scrape_s=now + self.scrape_s)
        return decision, state

    def _sync(
        self, bounds: Bounds, seen: Observation, state: HpaState[SeriesT]
    ) -> tuple[Decision, HpaState[SeriesT]]:
        metrics = self.source.metrics(state.series)
        now, current = seen.now_s, seen.provisioned
        if self._is_active(metrics):
            state = replace(state, active_at_s=now)
        since = state.active_at_s
        if current == 0:
            woken = max(1, bounds.min_replicas)
            if since == now:
                return decided(bounds, seen, woken, "KEDA sees work"), state
            if bounds.min_replicas == 0:
                return unchanged(bounds, seen, "An HPA rests at zero replicas.", "AtZero"), state
        elif bounds.min_replicas == 0 and self._is_cold(metrics, now, since):
            return decided(bounds, seen, 0, "no work for KEDA's cooldown"), state
        floor = max(1, bounds.min_replicas)
        if not floor <= current <= bounds.max_replicas:
            return decided(bounds, seen, max(floor, current), "out of bounds"), state
        return self._move(Bounds(floor, bounds.max_replicas), seen, state, metrics)

    def _move(
        self,
        bounds: Bounds,
        seen: Observation,
        state: HpaState[SeriesT],
        metrics: tuple[Metric, ...],
    ) -> tuple[Decision, HpaState[SeriesT]]:
        now, current = seen.now_s, seen.provisioned
        asked = [(m.name, m.propose(current, self.tolerance)) for m in metrics]
        valid = [(p.replicas, name, p.note) for name, p in asked if p.replicas is not None]
        if not valid or (len(valid) < len(asked) and max(valid)[0] < current):
            notes = "; ".join(p.note for _, p in asked) or "nothing scraped yet"
            return held(bounds, seen, f"No valid metric: {notes}.", "FailedGetMetrics"), state
        trail = tuple(TrailEntry(name, n, note) for n, name, note in valid)
        wanted, _, why = max(valid, key=lambda v: v[0])
        past = state.recommendations or (Stamped(now, current),)
        calm = stabilized(self.behavior, current, wanted, past, now)
        slow = limited(self.behavior, current, calm, state.changes, now)
        trail += (
            TrailEntry("stabilization", calm, f"{len(past)} recommendations"),
            TrailEntry("policies", slow, f"from {current}"),
        )
        decision = decided(bounds, seen, slow, why, trail)
        oldest = now - self.behavior.memory_s
        changes = tuple(c for c in state.changes if c.at_s > oldest)
        if decision.desired != current:
            changes = (*changes, Stamped(now, decision.desired - current))
        kept = (*(r for r in past if r.at_s > oldest), Stamped(now, wanted))
        return decision, replace(state, recommendations=kept, changes=changes)

    def _is_active(self, metrics: tuple[Metric, ...]) -> bool:
        if self.activation is None:
            return False
        return any((total or 0.0) > self.activation.threshold for total in _totals(metrics))

    def _is_cold(self, metrics: tuple[Metric, ...], now_s: float, since: float | None) -> bool:
        if self.activation is None or not metrics or None in _totals(metrics):
            return False
        return since is None or now_s - since >= self.activation.cooldown_s


def _totals(metrics: tuple[Metric, ...]) -> list[float | None]:
    return [m.total for m in metrics if isinstance(m, AverageMetric)]


def _has_passed(at_s: float | None, now_s: float) -> bool:
    return at_s is not None and now_s >= at_s - 1e-6
