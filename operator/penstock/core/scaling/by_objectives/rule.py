"""The scaling rule by objectives.

    observe -> learn -> capacity of a replica -> demand up to the horizon -> need -> up | down | hold

Scale-up follows the need once it has lasted for a part of a pod's start-up time: a burst that ends before a
pod could help adds no replica. If requests wait though all replicas run, arrivals say too little (a closed
loop shows no more than the replicas serve), and the queue itself requests replicas. Scale-down needs the same
inequality to hold with one replica fewer for some time, with any headroom and up to a longer horizon. Without
metrics the number is held.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from penstock.core.scaling.blind import missing_metrics
from penstock.core.scaling.by_objectives.capacity import Room
from penstock.core.scaling.by_objectives.iteration import Fit, IterationModel
from penstock.core.scaling.by_objectives.mixed import MixedNeed, Variant, believed, mean_model
from penstock.core.scaling.by_objectives.need import Need
from penstock.core.scaling.by_objectives.outcomes import Outcomes
from penstock.core.scaling.by_objectives.queue import Queue
from penstock.core.scaling.by_objectives.startup import StartUp
from penstock.core.scaling.by_objectives.state import HOLD_S, SizingState
from penstock.core.scaling.by_objectives.watch import Watch
from penstock.core.scaling.decisions import bounded_decision, held_decision, source_entries
from penstock.core.scaling.delays import ScaleUpDelay
from penstock.core.scaling.rule import Bounds, Decision, DecisionCode, TrailEntry
from penstock.core.scaling.signals import STALE_S, EngineReading, Observation
from penstock.core.spec.objectives import Objectives

# Fewer must be enough by so much: what is just enough is not for long, and comes back as a reversal. Who
# gives more than SPARING_LOSS away takes that as well: by half of it at twice the loss.
SPARE, SPARING_LOSS = 0.1, 2.0
# A crowd is over when so many replicas are too many.
CROWD = 2
# More is not asked for to be safe from more than so many times the level; fewer must be safe from the
# most there is in HEADROOMS, so that they are not too few again at once.
WORTH_ITS_PRICE = 1.45
# Until an engine has said how much it holds: no limit.
UNKNOWN_KV_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class Sizing:
    """prior: of the iteration time, from `penstock calibrate` or a table; what engines report
    corrects it. startup_s: believed until the first pod has started. loss: how many times as many
    requests as may fail the objectives may come too early for the replicas there are, by each margin
    for itself; as replicas are whole and margins add up, fewer do. calm_s: for how long a smaller
    number must have been enough. max_num_seqs: of an engine that does not report it. backlog: the share
    of waiting work that new pods are to take over; in deadline order what is late already waits for a
    quieter moment. patience: for what part of a pod's start more must have been needed, unless there is
    none.
    variants: of the engines, to choose from by price; none where all are alike."""

    prior: IterationModel
    startup_s: float = 120.0
    max_num_seqs: int = 256
    loss: float = 1.5
    calm_s: float = 60.0
    backlog: float = 0.2
    patience: float = 0.1
    period_s: float = 2.0
    variants: tuple[Variant, ...] = ()

    @property
    def _spare(self) -> float:
        return SPARE * min(1.0, SPARING_LOSS / self.loss)

    def initial(self) -> SizingState:
        return SizingState(Watch(Fit.around(self.prior)), StartUp(self.startup_s))

    def limited(self, most: Mapping[str, int]) -> "Sizing":
        """With no more replicas of a variant than that, where one is named."""
        return replace(self, variants=tuple(v.limited(most) for v in self.variants))

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: SizingState
    ) -> tuple[Decision, SizingState]:
        seen = seen.without_stale(STALE_S)
        outcomes = Outcomes.between(state.readings.gateway, seen.gateway)
        state = state.after(seen, self.variants, self.startup_s)
        if (why := missing_metrics(seen, uses_gateway=True)) is not None:
            return held_decision(bounds, seen, why), replace(state, calm_s=None)
        if state.traffic.mix is None or len(state.demand.history) < 2:
            why = "no request has come yet"
            return held_decision(bounds, seen, why, "NoRequests"), replace(state, calm_s=None)
        need = self._need(objectives, bounds, seen, state)
        came_s, rate = state.demand.history[-1].work_s, need.rate_of(seen)
        hindsight = state.hindsight.with_observation(
            seen.now_s, came_s, need.slack_s, rate, outcomes
        )
        state = replace(state, hindsight=hindsight)
        trail = _known(seen, need, state)
        state, entries = self._wanted(objectives, bounds, seen, need, state)
        trail += entries
        wanted = entries[-1].replicas
        code: DecisionCode = "ScaleUp"
        # What came a while ago wakes nobody.
        is_awake = seen.provisioned or state.traffic.arrivals or not seen.is_idle
        if wanted > seen.provisioned and is_awake:
            desired, state = wanted, replace(state, calm_s=None)
            if not (isinstance(need, MixedNeed) and need.is_replacing):
                state = state.grown(seen.now_s, by_queue=entries[-1].step == "queue")
        else:
            desired, code, state, entries = self._spared(bounds, seen, need, state)
            trail += entries
        decision = bounded_decision(bounds, seen.provisioned, desired, code, trail)
        return need.decided(decision) if isinstance(need, MixedNeed) else decision, state

    def _need(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: SizingState
    ) -> Need | MixedNeed:
        mix = state.traffic.mix
        assert mix is not None

        def need(
            model: IterationModel,
            kv_tokens: int | None,
            startup: StartUp,
            engines: Collection[EngineReading],
        ) -> Need:
            limits = (each.max_num_seqs or self.max_num_seqs for each in engines)
            max_num_seqs = min(limits, default=self.max_num_seqs)
            return Need(
                objectives,
                seen,
                mix,
                model,
                Room(kv_tokens or UNKNOWN_KV_TOKENS, max_num_seqs),
                state.demand,
                state.hindsight,
                horizon_s=startup.expected_s + 2 * self.period_s,
                backlog=self.backlog,
                unit=state.fit.model,
            )

        if self.variants:
            models = believed(self.variants, state.known)
            needs = (
                need(model, known.kv_tokens, known.startup, state.readings.of_variant(name, seen))
                for model, (name, known) in zip(models, state.known.items(), strict=True)
            )
            return MixedNeed(self.variants, tuple(needs), seen.by_variant, bounds)
        engines = state.readings.engines.values()
        kv_tokens = min((reading.kv_capacity_tokens for reading in engines), default=None)
        return need(state.fit.model, kv_tokens, state.startup, engines)

    def _wanted(
        self,
        objectives: Objectives,
        bounds: Bounds,
        seen: Observation,
        need: Need | MixedNeed,
        state: SizingState,
    ) -> tuple[SizingState, list[TrailEntry]]:
        """What is asked for, in the last entry, where that is more than there is."""
        current = seen.provisioned
        wanted, note = need.replicas(self.loss, need.horizon_s, WORTH_ITS_PRICE, is_sure=True)
        entries = [TrailEntry("need", wanted, note)]
        state, queue = self._queue(objectives, seen, state, need.horizon_s)
        if wanted <= current:
            state = replace(state, patience=ScaleUpDelay())
            entries += [queue] if queue is not None else []
        elif 0 < current < bounds.max_replicas:
            enough_s = self.patience * need.horizon_s
            patience, entry = state.patience.delay(wanted, current, seen.now_s, enough_s)
            state = replace(state, patience=patience)
            entries.append(entry)
        return state, entries

    def _queue(
        self, objectives: Objectives, seen: Observation, state: SizingState, startup_s: float
    ) -> tuple[SizingState, TrailEntry | None]:
        """What the queue asks for, where it says that arrivals say too little; then not again so soon."""
        mix, now_s, ttft_s = state.traffic.mix, seen.now_s, objectives.max_wait_s
        if mix is None:
            return state, None
        model = mean_model(self.variants, state.known, seen) or state.fit.model
        queue = Queue.seen(seen, model, mix, self.max_num_seqs)
        is_starting = bool(seen.starting) or not seen.readings
        pressure = state.pressure.after(queue, now_s, ttft_s, startup_s, is_starting=is_starting)
        state = replace(state, pressure=pressure)
        lacks_places = pressure.lacks_places(queue, now_s, ttft_s)
        if not lacks_places and not pressure.lacks_time(queue, now_s, ttft_s):
            return state, None
        current = seen.provisioned
        more = pressure.more(queue, current)
        lack = f"{queue.free:.0f} places" if lacks_places else f"{pressure.lasted_s(now_s):.0f} s"
        note = f"{queue.waiting} wait beside {queue.running} that run, for {lack}: {more} more"
        entry = TrailEntry("queue", current + more, note)
        return replace(state, pressure=pressure.answered(now_s, queue)), entry

    def _spared(
        self, bounds: Bounds, seen: Observation, need: Need | MixedNeed, state: SizingState
    ) -> tuple[int, DecisionCode, SizingState, list[TrailEntry]]:
        """Where no more are needed: as many, one fewer when that has been enough for long, or one more of
        the variant that another gives way to; and what that is called."""
        current = seen.provisioned
        fewer, note = need.replicas(self.loss, need.horizon_s + self.calm_s, spare=self._spare)
        entries = [TrailEntry("risk", fewer, note)]
        calm_s = seen.now_s if state.calm_s is None or seen.starting else state.calm_s
        calm = replace(state, calm_s=calm_s)
        is_lasting = state.pressure.is_lasting(seen.now_s)
        if fewer < current and current > bounds.min_replicas and not is_lasting:
            if not self._may_shrink(seen, calm, current - fewer):
                return current, "ScaleDownDelayed", calm, entries
            entries.append(TrailEntry("down", current - 1, f"{fewer} have been enough"))
            # What follows is no second reversal.
            return current - 1, "ScaleDown", replace(calm, grew_s=None), entries
        if isinstance(need, MixedNeed) and (more := need.swapped()) > current:
            if not _is_settled(seen, calm, HOLD_S) or calm.held_s(seen.now_s) >= 0:
                return current, "Steady", calm, entries
            entries.append(TrailEntry("swap", more, need.why_swapped))
            return more, "Swap", calm, entries
        return current, "Steady", replace(state, calm_s=None), entries

    def _may_shrink(self, seen: Observation, state: SizingState, too_many: int) -> bool:
        """It has not just grown, unless for a crowd that is over: and the last one goes only when there
        is nothing to do."""
        if not _is_settled(seen, state, self.calm_s):
            return False
        left_s = state.held_s(seen.now_s)
        is_over = too_many >= CROWD or state.demand.level <= state.grew_from
        # What is left of it is waited for when it is no longer than another calm: more may come back.
        is_held = left_s >= 0 and (left_s <= self.calm_s or not is_over)
        return not is_held and (seen.provisioned > 1 or seen.is_idle)


def _is_settled(seen: Observation, state: SizingState, for_s: float) -> bool:
    """None starts, none is silent, numbers do not stand still, and it has been calm for so long. For a swap
    that is longer than for fewer, as two pods are paid for until one goes."""
    if seen.starting or seen.missing or state.news_s < seen.now_s or state.calm_s is None:
        return False
    return seen.now_s - state.calm_s >= for_s


def _known(seen: Observation, need: Need | MixedNeed, state: SizingState) -> list[TrailEntry]:
    """What the decision is made by."""
    notes = {
        "capacity": need.capacity_note,
        "silence": state.silence.note(seen.now_s) if state.silence.lasts(seen.now_s) else None,
    }
    told = ((step, note) for step, note in notes.items() if note is not None)
    known = [TrailEntry(step, seen.provisioned, note) for step, note in told]
    return source_entries(seen) + known
