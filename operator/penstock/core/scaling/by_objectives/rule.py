"""The scaling rule by objectives.

    observe -> capacity of a replica -> load -> forecast one start-up ahead -> need -> up | down | hold

A pod that is requested now serves one start-up later. So the rule forecasts the load for that time, adds a
margin from the errors of earlier forecasts, and requests the replicas that this takes. It removes replicas
that were not needed for as long as a pod takes to start: keeping them for less is no dearer than starting
them again (DelayedOff: Gandhi, Gupta, Harchol-Balter and Kozuch, 2010). Without metrics it holds the number.
docs/concepts/scaling.md has the equation and all constants.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from penstock.core.engine_time.iteration import Fit, IterationModel
from penstock.core.scaling.blind import missing_metrics
from penstock.core.scaling.by_objectives.need import Need, ShownUnit
from penstock.core.scaling.by_objectives.state import ObjectivesState
from penstock.core.scaling.by_objectives.steps import choose_step
from penstock.core.scaling.decisions import (
    bounded_decision,
    held_decision,
    source_entries,
    with_idle,
)
from penstock.core.scaling.delays import ScaleUpDelay
from penstock.core.scaling.learned.capacity import EngineLimits, Mix
from penstock.core.scaling.learned.footprint import Footprint
from penstock.core.scaling.learned.startup import PRIOR_STARTUP_S, StartUp, is_any_starting
from penstock.core.scaling.learned.traffic import FIRST_OUTPUT, Traffic
from penstock.core.scaling.learned.watch import Watch
from penstock.core.scaling.rule import UNATTAINABLE, Bounds, Decision, TrailEntry
from penstock.core.scaling.signals import STALE_S, EngineReading, Observation
from penstock.core.scaling.variants.mixed import MixedNeed, Variant, iteration_models
from penstock.core.spec.objectives import Objectives

# KV tokens of an engine that has not reported them: no limit.
UNKNOWN_KV_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class ObjectivesRule:
    """Settings of the rule."""

    # Iteration time of an engine before it has reported, from `penstock calibrate` or a table
    prior: IterationModel
    startup_s: float = PRIOR_STARTUP_S  # start-up time of a pod until one has started
    max_num_seqs: int = 256  # of an engine that does not report it
    # Limit of an output whose request sets none; it bounds what is assumed before any answer ended
    max_output_tokens: int | None = None
    # Multiple of the allowed miss fraction up to which load may exceed the replicas
    loss: float = 1.0
    calm_s: float = 60.0  # minimum scale-down delay; recordings have this field
    period_s: float = 2.0
    # Kinds of engines to choose from by price; none if all are alike
    variants: tuple[Variant, ...] = ()

    def initial(self) -> ObjectivesState:
        output = FIRST_OUTPUT
        if self.max_output_tokens is not None:
            output = replace(output, value=min(output.value, self.max_output_tokens))
        traffic = Traffic(output=output)
        return ObjectivesState(
            Watch(Fit.around(self.prior)), StartUp(self.startup_s), traffic=traffic
        )

    def limited(self, most: Mapping[str, int]) -> "ObjectivesRule":
        """The rule with smaller limits on replicas of variants. most: limits by name."""
        return replace(self, variants=tuple(v.limited(most) for v in self.variants))

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: ObjectivesState
    ) -> tuple[Decision, ObjectivesState]:
        decision, state = self._decide(objectives, bounds, seen, state)
        return with_idle(bounds, seen, decision), state

    def _decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: ObjectivesState
    ) -> tuple[Decision, ObjectivesState]:
        """Decide on a service that is not at zero."""
        seen = seen.without_stale(STALE_S)
        state = state.updated(seen, self.variants, self.startup_s)
        missing, mix = missing_metrics(seen, uses_gateway=True), state.traffic.mix
        if mix is None:
            return _hold(bounds, seen, state, missing, "no request has come yet")
        lead_s = self._lead_s(state)
        footprint = self._footprint(objectives, mix, state)
        state = self._rescale_forecast(objectives, mix, state, footprint)
        state = state.with_load(seen, footprint, lead_s)
        if missing is not None or not state.forecast.history:
            why = "arrivals have not been observed for long enough"
            return _hold(bounds, seen, state, missing, why)
        loss = self.loss * state.outcomes.allowed_loss(objectives.attainment)
        mixed = self._variant_need(objectives, bounds, seen, mix, state, footprint)
        missed = _unattainable(state, footprint, mixed)
        state = _update_correction(objectives, bounds, seen, state, mixed, missed, lead_s)
        unit = ShownUnit()
        if mixed:  # in replicas that exist, not in those of a prior that may be far off
            name, factor = mixed.first
            unit = ShownUnit(factor, f"replicas of {name}")
        need = Need.of(state, footprint, loss=loss, lead_s=lead_s, unit=unit)
        capacity = mixed.capacity_note if mixed else footprint.note(mix)
        trail = [*source_entries(seen), TrailEntry("capacity", seen.provisioned, capacity)]
        if missed:
            note = f"not attainable: {missed}; replicas are sized by engine time"
            trail.append(TrailEntry(UNATTAINABLE, seen.provisioned, note))
        code, state, entries = choose_step(bounds, seen, need, mixed, state, lead_s, self.calm_s)
        trail += entries
        decision = bounded_decision(bounds, seen.provisioned, trail[-1].replicas, code, trail)
        return mixed.decided(decision) if mixed else decision, state

    def _lead_s(self, state: ObjectivesState) -> float:
        """Time from a decision until its pod serves: that of the slowest variant which has started one."""
        starts = [known.startup for known in state.known.values()] or [state.startup]
        measured = [start for start in starts if start.is_measured]
        return max(start.expected_s for start in measured or starts) + 2 * self.period_s

    def _footprint(self, objectives: Objectives, mix: Mix, state: ObjectivesState) -> Footprint:
        """Footprint on the kind of replica that is the unit of the forecast."""
        engines = () if self.variants else tuple(state.readings.engines.values())
        limits = self._engine_limits(engines)
        return Footprint.of(state.fit.model, mix, limits, objectives)

    def _rescale_forecast(
        self, objectives: Objectives, mix: Mix, state: ObjectivesState, footprint: Footprint
    ) -> ObjectivesState:
        """The state with its forecasts in replicas under the present objectives, if these have changed."""
        before = state.objectives
        if before == objectives:
            return state
        if before is not None:
            old = self._footprint(before, mix, state).request_replicas(mix)
            factor = footprint.request_replicas(mix) / max(1e-9, old)
            state = replace(state, forecast=state.forecast.scaled(factor))
        return replace(state, objectives=objectives)

    def _engine_limits(self, engines: Collection[EngineReading]) -> EngineLimits:
        """The smallest limits of some engines."""
        kv_tokens = min((each.kv_capacity_tokens for each in engines), default=UNKNOWN_KV_TOKENS)
        num_seqs = (each.max_num_seqs or self.max_num_seqs for each in engines)
        return EngineLimits(
            kv_tokens or UNKNOWN_KV_TOKENS, min(num_seqs, default=self.max_num_seqs)
        )

    def _variant_need(
        self,
        objectives: Objectives,
        bounds: Bounds,
        seen: Observation,
        mix: Mix,
        state: ObjectivesState,
        unit: Footprint,
    ) -> MixedNeed | None:
        """Footprints on the replicas of each variant; None if there are no variants."""
        if not self.variants:
            return None
        models = iteration_models(self.variants, state.known)
        footprints = []
        for model, (name, known) in zip(models, state.known.items(), strict=True):
            limits = self._engine_limits(state.readings.of_variant(name, seen))
            limits = replace(limits, kv_tokens=known.kv_tokens or UNKNOWN_KV_TOKENS)
            footprints.append(Footprint.of(model, mix, limits, objectives))
        return MixedNeed(self.variants, tuple(footprints), unit, seen.by_variant, bounds, mix)


def _hold(
    bounds: Bounds, seen: Observation, state: ObjectivesState, missing: str | None, why: str
) -> tuple[Decision, ObjectivesState]:
    """Hold the number because metrics are `missing`, or else for the reason `why`."""
    state = state.restart_scale_down_delay()
    if missing is not None:
        return held_decision(bounds, seen, missing), replace(state, up=ScaleUpDelay())
    return held_decision(bounds, seen, why, "NoRequests"), state


def _unattainable(state: ObjectivesState, footprint: Footprint, mixed: MixedNeed | None) -> str:
    """The objectives that idle engines of all kinds miss, in words; empty until engines were measured."""
    if mixed is not None:
        is_measured = any(known.fit.is_measured for known in state.known.values())
        return mixed.unattainable if is_measured else ""
    return footprint.unattainable if state.fit.is_measured else ""


def _update_correction(
    objectives: Objectives,
    bounds: Bounds,
    seen: Observation,
    state: ObjectivesState,
    mixed: MixedNeed | None,
    missed: str,
    lead_s: float,
) -> ObjectivesState:
    """The state with the correction for late requests that neither the load nor the objectives explain.

    At the maximum a correction could change nothing, so that late requests there say nothing about it.
    """
    ready = mixed.ready_units(seen) if mixed else len(seen.ready)
    is_short = state.forecast.now.load > ready or is_any_starting(seen, lead_s)
    correction = state.correction.updated(
        seen.now_s,
        state.ended,
        is_explained=is_short or bool(missed) or seen.provisioned >= bounds.max_replicas,
        window_s=lead_s,
        allowed=1 - objectives.attainment,
    )
    return replace(state, correction=correction)
