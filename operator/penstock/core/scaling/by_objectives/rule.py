"""The scaling rule by objectives.

    observe -> capacity of a replica -> load -> forecast one start-up ahead -> need -> up | down | hold

A pod that is requested now serves one start-up later. So the rule forecasts the load for that time, adds a
margin from the errors of earlier forecasts, and requests the replicas that this takes. It removes replicas
that were not needed for as long as a pod takes to start: keeping them for less is no dearer than starting
them again (DelayedOff: Gandhi, Gupta, Harchol-Balter and Kozuch, 2010). Without metrics it holds the number.
docs/concepts/scaling.md has the equation and all constants.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from penstock.core.scaling.blind import missing_metrics
from penstock.core.scaling.by_objectives.need import Need, ShownUnit
from penstock.core.scaling.by_objectives.state import SizingState
from penstock.core.scaling.decisions import bounded_decision, held_decision, source_entries
from penstock.core.scaling.delays import ScaleUpDelay
from penstock.core.scaling.learned.capacity import Mix, Room
from penstock.core.scaling.learned.footprint import Footprint
from penstock.core.scaling.learned.iteration import Fit, IterationModel
from penstock.core.scaling.learned.startup import StartUp, is_any_starting
from penstock.core.scaling.learned.traffic import FIRST_OUTPUT, Traffic
from penstock.core.scaling.learned.watch import Watch
from penstock.core.scaling.rule import UNATTAINABLE, Bounds, Decision, DecisionCode, TrailEntry
from penstock.core.scaling.signals import STALE_S, EngineReading, Observation
from penstock.core.scaling.variants.mixed import MixedNeed, Variant, iteration_models
from penstock.core.spec.objectives import Objectives

# KV tokens of an engine that has not reported them: no limit.
UNKNOWN_KV_TOKENS = 10**9
# Scale-up delay, as a fraction of a start-up: shorter peaks are over before a pod could help.
SCALE_UP_DELAY = 0.05
# Most replicas after one scale-up, as a multiple of the present ones: the default of an HPA. A growth by k is
# requested at most log2(k) delays later. Without it, a burst of one decision requested 20 where 4 are enough.
MAX_GROWTH = 2
# Dead band of scale-down: fewer replicas must hold the need and this fraction more. Without it, a load near a
# whole number would reverse removals.
SPARE = 0.05
# Time after a scale-up in which a single replica is not removed, as it would soon be needed again.
GROWTH_KEPT_S = 600.0
# Time for which another mix of variants must have been cheaper. Both are paid for until one goes.
SWAP_DELAY_S = 600.0


@dataclass(frozen=True, slots=True)
class Sizing:
    """Settings of the rule.

    prior: iteration time of an engine before it has reported, from `penstock calibrate` or a table.
    startup_s: start-up time of a pod until one has started. loss: fraction of the load that may be beyond
    the replicas, over the fraction of requests that may miss the objectives. calm_s: least scale-down
    delay. max_num_seqs: of an engine that does not report it. max_output_tokens: of requests that set no
    limit, which bounds the output assumed before any answer ended; None if there is none. variants: kinds of
    engines to choose from by price; none if all are alike.
    """

    prior: IterationModel
    startup_s: float = 120.0
    max_num_seqs: int = 256
    max_output_tokens: int | None = None
    loss: float = 1.0
    calm_s: float = 60.0
    period_s: float = 2.0
    variants: tuple[Variant, ...] = ()

    def initial(self) -> SizingState:
        output = FIRST_OUTPUT
        if self.max_output_tokens is not None:
            output = replace(output, value=min(output.value, self.max_output_tokens))
        traffic = Traffic(output=output)
        return SizingState(Watch(Fit.around(self.prior)), StartUp(self.startup_s), traffic=traffic)

    def limited(self, most: Mapping[str, int]) -> "Sizing":
        """The rule with smaller limits on replicas of variants. most: limits by name."""
        return replace(self, variants=tuple(v.limited(most) for v in self.variants))

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: SizingState
    ) -> tuple[Decision, SizingState]:
        seen = seen.without_stale(STALE_S)
        state = state.updated(seen, self.variants, self.startup_s)
        missing, mix = missing_metrics(seen, uses_gateway=True), state.traffic.mix
        if mix is None:
            return _held(bounds, seen, state, missing, "no request has come yet")
        lead_s = self._lead_s(state)
        footprint = self._footprint(objectives, mix, state)
        state = self._in_new_units(objectives, mix, state, footprint)
        state = state.with_load(seen, footprint, lead_s)
        if missing is not None or not state.forecast.history:
            why = "arrivals have not been observed for long enough"
            return _held(bounds, seen, state, missing, why)
        loss = self.loss * state.outcomes.allowed_loss(objectives.attainment)
        mixed = self._mixed(objectives, bounds, seen, mix, state, footprint)
        missed = _unattainable(state, footprint, mixed)
        state = _corrected(objectives, bounds, seen, state, mixed, missed, lead_s)
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
        code, state, entries = self._step(bounds, seen, need, mixed, state, lead_s)
        trail += entries
        decision = bounded_decision(bounds, seen.provisioned, trail[-1].replicas, code, trail)
        return mixed.decided(decision) if mixed else decision, state

    def _lead_s(self, state: SizingState) -> float:
        """Time from a decision until its pod serves: that of the slowest variant which has started one."""
        starts = [known.startup for known in state.known.values()] or [state.startup]
        measured = [start for start in starts if start.times_s]
        return max(start.expected_s for start in measured or starts) + 2 * self.period_s

    def _footprint(self, objectives: Objectives, mix: Mix, state: SizingState) -> Footprint:
        """Footprint on the kind of replica that is the unit of the forecast."""
        engines = () if self.variants else tuple(state.readings.engines.values())
        room = self._room(engines)
        return Footprint.of(state.fit.model, mix, room, objectives)

    def _in_new_units(
        self, objectives: Objectives, mix: Mix, state: SizingState, footprint: Footprint
    ) -> SizingState:
        """The state with its forecasts in replicas under the present objectives, if these have changed."""
        before = state.objectives
        if before == objectives:
            return state
        if before is not None:
            old = self._footprint(before, mix, state).request_replicas(mix)
            factor = footprint.request_replicas(mix) / max(1e-9, old)
            state = replace(state, forecast=state.forecast.scaled(factor))
        return replace(state, objectives=objectives)

    def _room(self, engines: Collection[EngineReading]) -> Room:
        """The smallest limits of some engines."""
        kv_tokens = min((each.kv_capacity_tokens for each in engines), default=UNKNOWN_KV_TOKENS)
        limits = (each.max_num_seqs or self.max_num_seqs for each in engines)
        return Room(kv_tokens or UNKNOWN_KV_TOKENS, min(limits, default=self.max_num_seqs))

    def _mixed(
        self,
        objectives: Objectives,
        bounds: Bounds,
        seen: Observation,
        mix: Mix,
        state: SizingState,
        unit: Footprint,
    ) -> MixedNeed | None:
        """Footprints on the replicas of each variant; None if there are no variants."""
        if not self.variants:
            return None
        models = iteration_models(self.variants, state.known)
        footprints = []
        for model, (name, known) in zip(models, state.known.items(), strict=True):
            room = self._room(state.readings.of_variant(name, seen))
            room = replace(room, kv_tokens=known.kv_tokens or UNKNOWN_KV_TOKENS)
            footprints.append(Footprint.of(model, mix, room, objectives))
        return MixedNeed(self.variants, tuple(footprints), unit, seen.by_variant, bounds, mix)

    def _step(
        self,
        bounds: Bounds,
        seen: Observation,
        need: Need,
        mixed: MixedNeed | None,
        state: SizingState,
        lead_s: float,
    ) -> tuple[DecisionCode, SizingState, list[TrailEntry]]:
        """Choose the step after the need: more replicas, fewer, another mix of variants, or the same."""
        current = seen.provisioned
        is_busy = state.busy_s == seen.now_s
        wanted, note = _whole(need.replicas, need.note, mixed)
        entries = [
            TrailEntry("forecast", current, need.forecast_note),
            TrailEntry("need", wanted, note),
        ]
        if wanted > current and (current or is_busy):
            return self._scale_up(bounds, seen, wanted, state.unsettled(), lead_s, entries)
        state = replace(state, up=ScaleUpDelay())
        delay_s = max(self.calm_s, lead_s)
        if is_any_starting(seen, lead_s) or seen.missing or state.news_s < seen.now_s:
            held = TrailEntry("steady", current, f"{current} are held until all replicas report")
            return "Steady", state.unsettled(), [*entries, held]
        spared = (1 + SPARE) * need.replicas
        needs = state.needs.updated(seen.now_s, spared, delay_s)
        state = replace(state, needs=needs)
        kept = _kept(spared, bounds, mixed, is_busy=is_busy)
        was_busy = is_busy or seen.now_s < state.busy_s + delay_s
        least = _kept(max(needs.largest, need.replicas_now), bounds, mixed, is_busy=was_busy)
        entry = needs.entry(current, least, seen.now_s, delay_s)
        age_s = math.inf if state.grew_s is None else seen.now_s - state.grew_s
        if entry.replicas == current - 1 > 0 and age_s < GROWTH_KEPT_S:
            note = f"{current} are held: one fewer is enough, {age_s:.0f} s after a scale-up"
            entry = TrailEntry("delay", current, note)
        if entry.replicas < current:
            return "ScaleDown", state, [*entries, entry]
        is_cheaper = mixed is not None and mixed.replicas_with_swap() > current
        state = replace(state, swap=state.swap.updated(seen.now_s, is_low=is_cheaper))
        if mixed is not None and state.swap.is_over(SWAP_DELAY_S):
            swap = TrailEntry("swap", mixed.replicas_with_swap(), mixed.swap_note)
            return "Swap", state.unsettled(), [*entries, swap]
        return "ScaleDownDelayed" if kept < current else "Steady", state, [*entries, entry]

    def _scale_up(
        self,
        bounds: Bounds,
        seen: Observation,
        wanted: int,
        state: SizingState,
        lead_s: float,
        entries: list[TrailEntry],
    ) -> tuple[DecisionCode, SizingState, list[TrailEntry]]:
        """Request more replicas once they have been needed for the scale-up delay.

        The first ones are added at once, later ones at most MAX_GROWTH times the present number. At the
        maximum nothing can be added, so nothing is waited for.
        """
        if seen.provisioned >= bounds.max_replicas:
            return "ScaleUp", replace(state, up=ScaleUpDelay()), entries
        grown = replace(state, up=ScaleUpDelay(), grew_s=seen.now_s)
        if not seen.provisioned:
            return "ScaleUp", grown, entries
        up, entry = state.up.delay(wanted, seen.provisioned, seen.now_s, SCALE_UP_DELAY * lead_s)
        if entry.step == "up":
            return "ScaleUp", grown, [*entries, _limited(entry, seen.provisioned)]
        return "Steady", replace(state, up=up), [*entries, entry]


def _held(
    bounds: Bounds, seen: Observation, state: SizingState, missing: str | None, why: str
) -> tuple[Decision, SizingState]:
    """Hold the number because metrics are `missing`, or else for the reason `why`."""
    if missing is not None:
        return held_decision(bounds, seen, missing), replace(state.unsettled(), up=ScaleUpDelay())
    return held_decision(bounds, seen, why, "NoRequests"), state.unsettled()


def _unattainable(state: SizingState, footprint: Footprint, mixed: MixedNeed | None) -> str:
    """The objectives that idle engines of all kinds miss, in words; empty until engines were measured."""
    if mixed is not None:
        is_measured = any(known.fit.is_measured for known in state.known.values())
        return mixed.unattainable if is_measured else ""
    return footprint.unattainable if state.fit.is_measured else ""


def _corrected(
    objectives: Objectives,
    bounds: Bounds,
    seen: Observation,
    state: SizingState,
    mixed: MixedNeed | None,
    missed: str,
    lead_s: float,
) -> SizingState:
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


def _limited(up: TrailEntry, current: int) -> TrailEntry:
    """The step of a scale-up, with at most MAX_GROWTH times the present replicas."""
    limit = MAX_GROWTH * current
    if up.replicas <= limit:
        return up
    return replace(
        up, replicas=limit, note=f"{up.note}; at most {MAX_GROWTH} x {current} at a time"
    )


def _whole(replicas: float, note: str, mixed: MixedNeed | None) -> tuple[int, str]:
    """Round a need up to whole replicas, of the cheapest variants if there are some; with the reason."""
    if mixed is None:
        return math.ceil(replicas - 1e-9), note
    count, which = mixed.replicas(replicas)
    return count, f"{note}: {which}"


def _kept(need: float, bounds: Bounds, mixed: MixedNeed | None, *, is_busy: bool) -> int:
    """Whole replicas for a need. The last one is kept only while requests wait or run."""
    replicas, _ = _whole(need, "", mixed)
    return max(bounds.min_replicas, replicas if replicas > 1 else int(is_busy))
