"""Penstock's own scaling rule.

    look -> learn -> capacity of a replica -> demand to the horizon -> need -> up | down | hold

The need is the smallest number that takes in, at every horizon up to the time a new pod needs, all
work but a small share, when requests may wait as long as their TTFT allows; and that keeps the tokens
of all but a small share as close together as TPOT asks, whatever bursts there are by then:

    replicas >= (level * headroom(T) * T + backlog) / (busy * (T + slack))      for all T
    replicas >= level * headroom of bursts / busy in time

Up follows the need at once. Where requests wait though all replicas are there, arrivals say too
little (in a closed loop they are what the replicas can take), and the queue itself asks. Down needs
the same inequality, with a smaller share and to a longer horizon, to hold without one replica, for
some time. Whoever cannot see holds.
"""

from dataclasses import dataclass, field, replace

from penstock.core.rule import Bounds, Decision, Objectives, TrailEntry
from penstock.core.signals import STALE_S, GatewayReading, Missing, Observation
from penstock.core.sizing.capacity import (
    Capacity,
    Mix,
    Room,
    capacity,
    request_work_s,
    settling_s,
    work_s,
)
from penstock.core.sizing.demand import Demand
from penstock.core.sizing.iteration import Fit, IterationModel, Window
from penstock.core.sizing.queue import PRESSED_S, Pressure, Queue
from penstock.core.sizing.startup import StartUp
from penstock.core.sizing.surprise import HEADROOMS, HORIZONS_S
from penstock.core.sizing.traffic import Readings, Traffic

# Engines whose iterations are looked at in one tick; the others' turn comes.
MAX_FITS = 8
# Shorter bursts are lost among the iterations; what lasts longer is a new level.
SHORTEST_BURST_S, LONGEST_BURST_S = 10.0, 320.0
# A growth is not taken back so soon, unless the load is down to what it was so long before, or there
# are so many too many.
HOLD_S, BEFORE_S, CROWD = 600.0, 120.0, 2
# More is not asked for to be safe from more than so many times the level; fewer must be safe from the
# most there is in HEADROOMS, so that they are not too few again at once.
WORTH_ITS_PRICE = 1.45
# Until an engine has said how much it holds: no limit.
UNKNOWN_KV_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class SizingState:
    """All that is remembered. calm_s: since when one replica fewer has been enough, and none
    starts: in a closed loop no more comes until they serve. grew_s: when more were asked for last;
    grew_from: the level before the growth of which that was a part."""

    fit: Fit
    startup: StartUp
    readings: Readings = field(default_factory=Readings)
    traffic: Traffic = field(default_factory=Traffic)
    demand: Demand = field(default_factory=Demand)
    calm_s: float | None = None
    pressure: Pressure = field(default_factory=Pressure)
    grew_s: float | None = None
    grew_from: float = 0.0
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Sizing:
    """prior: of the iteration time, from `penstock calibrate` or a table; what engines report
    corrects it. startup_s: believed until the first pod has started. loss: how many times as many
    requests as may fail the objectives may come too early for the replicas there are, by each margin
    for itself; as replicas are whole and margins add up, fewer do. caution: what part of that a smaller
    number may lose. calm_s: for how long a smaller number must have been enough. max_num_seqs: of an
    engine. backlog: the share of waiting work that
    new pods are to take over; in deadline order what is late already waits for a quieter moment."""

    prior: IterationModel
    startup_s: float = 120.0
    max_num_seqs: int = 256
    loss: float = 2.0
    caution: float = 0.5
    calm_s: float = 60.0
    backlog: float = 0.2
    period_s: float = 2.0

    def initial(self) -> SizingState:
        return SizingState(Fit.around(self.prior), StartUp(self.startup_s))

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: SizingState
    ) -> tuple[Decision, SizingState]:
        seen = seen.fresh(STALE_S)
        state = self._look(objectives, seen, state)
        blind = self._blindness(seen, state)
        if blind is not None:
            desired = bounds.clip(max(seen.provisioned, 0 if _is_idle(seen) else 1))
            entry = TrailEntry("blind", desired, blind)
            decision = Decision(desired, blind, "MetricsMissing", (entry,), valid=False)
            return decision, replace(state, calm_s=None)
        need = _Need(self, objectives, seen, state)
        trail = [TrailEntry("capacity", seen.provisioned, need.capacity_note)]
        if seen.second_hand is not None:
            trail.insert(0, TrailEntry("source", seen.provisioned, seen.second_hand))
        wanted, note = need.replicas(self.loss, need.horizon_s, WORTH_ITS_PRICE, is_sure=True)
        trail.append(TrailEntry("need", wanted, note))
        current = seen.provisioned
        state, queue = self._queue(objectives, seen, state)
        by_queue = False
        if queue is not None and wanted <= current:
            trail.append(queue)
            wanted, by_queue = queue.replicas, True
        calm_s: float | None = None
        # What came a while ago wakes nobody.
        is_awake = current or state.traffic.arrivals or not _is_idle(seen)
        if wanted > current and is_awake:
            desired, code = wanted, "ScaleUp"
            state = replace(_grown(seen, state), grew_from=0.0) if by_queue else _grown(seen, state)
        else:
            ahead_s = 2 * need.horizon_s + self.calm_s
            fewer, note = need.replicas(self.caution * self.loss, ahead_s)
            trail.append(TrailEntry("risk", fewer, note))
            desired, code = current, "Steady"
            if (
                fewer < current
                and current > bounds.min_replicas
                and not state.pressure.is_lasting(seen.now_s)
            ):
                calm_s = seen.now_s if state.calm_s is None or seen.starting else state.calm_s
                code = "ScaleDownDelayed"
                if self._may_shrink(seen, state, current - fewer, calm_s):
                    desired, code = current - 1, "ScaleDown"
                    trail.append(TrailEntry("down", desired, f"{fewer} have been enough"))
        clipped = bounds.clip(desired)
        within = f"within {bounds.min_replicas} to {bounds.max_replicas}"
        note = within if clipped == desired else f"bounded to {clipped}, {within}"
        trail.append(TrailEntry("bounds", clipped, note))
        told = [entry.note for entry in trail if entry.step in ("need", "queue", "risk", "down")]
        reason = "; ".join(told if clipped == desired else [*told, note])
        return Decision(clipped, reason, code, tuple(trail)), replace(state, calm_s=calm_s)

    def _look(self, objectives: Objectives, seen: Observation, state: SizingState) -> SizingState:
        fit = state.fit
        pairs = list(state.readings.pairs(seen))
        prompt_tokens = state.traffic.prompt.value
        for index in range(min(MAX_FITS, len(pairs))):
            window = Window.between(*pairs[(state.turn + index) % len(pairs)], prompt_tokens)
            fit = fit if window is None else fit.after(window)
        traffic = state.traffic.after(state.readings, seen, pairs)
        demand = state.demand
        mix = traffic.mix
        if mix is not None and not isinstance(seen.gateway, Missing):
            request_s = request_work_s(fit.model, mix)
            if (before := state.traffic.mix) is not None:
                believed_s = request_work_s(state.fit.model, before)
                demand = demand.restated(seen.now_s, request_s / believed_s)
            uncached = traffic.prompt_tokens * mix.uncached_tokens / max(1.0, mix.prompt_tokens)
            arrived_s = work_s(
                fit.model, uncached, mix.output_tokens * traffic.arrivals, mix.kv_tokens
            )
            burst_s = _burst_s(fit.model, mix, objectives)
            demand = demand.after(seen.now_s, arrived_s, request_s, burst_s)
        return replace(
            state,
            fit=fit,
            startup=state.startup.after(seen.pods),
            readings=state.readings.after(seen),
            traffic=traffic,
            demand=demand,
            turn=state.turn + MAX_FITS,
        )

    def _blindness(self, seen: Observation, state: SizingState) -> str | None:
        if isinstance(seen.gateway, Missing):
            return f"no numbers of the gateway ({seen.gateway.reason}): held"
        if seen.missing and not seen.readings:
            return f"no numbers of {seen.missing[0].who} ({seen.missing[0].reason}): held"
        if seen.gateway is None and not seen.ready:
            return "neither a gateway nor an engine that is ready: held"
        if state.traffic.mix is None or len(state.demand.history) < 2:
            return "no request has come yet: held"
        return None

    def _queue(
        self, objectives: Objectives, seen: Observation, state: SizingState
    ) -> tuple[SizingState, TrailEntry | None]:
        """What the queue asks for, where it says that arrivals say too little; then not again so soon."""
        mix, now_s, ttft_s = state.traffic.mix, seen.now_s, objectives.ttft_s
        if mix is None:
            return state, None
        queue = Queue.seen(seen, state.fit.model, mix, self.max_num_seqs)
        is_starting = bool(seen.starting) or not seen.readings
        pressure = state.pressure.after(queue, now_s, is_starting=is_starting)
        state = replace(state, pressure=pressure)
        lacks_places = pressure.lacks_places(queue, now_s, ttft_s)
        if not lacks_places and not pressure.lacks_time(queue, now_s, ttft_s):
            return state, None
        current = seen.provisioned
        more = min(current, -(-current * queue.waiting // max(1, queue.running)))
        why = f"for {queue.free:.0f} places" if lacks_places else f"for {PRESSED_S:g} s"
        note = f"{queue.waiting} wait beside {queue.running} that run, {why}: {more} more"
        entry = TrailEntry("queue", current + more, note)
        return replace(state, pressure=Pressure(now_s, is_backlog=queue.is_full)), entry

    def _may_shrink(
        self, seen: Observation, state: SizingState, too_many: int, calm_s: float
    ) -> bool:
        """None starts, none is silent, and it has not just grown, unless for a crowd that is over: and the
        last one goes only when there is nothing to do."""
        if seen.starting or seen.missing or seen.now_s - calm_s < self.calm_s:
            return False
        is_held = _is_held(seen, state) and too_many < CROWD
        return not is_held and (seen.provisioned > 1 or _is_idle(seen))


def _grown(seen: Observation, state: SizingState) -> SizingState:
    """More are asked for: another step of the same growth, or the first one of a new one."""
    level = state.demand.level_at(seen.now_s - BEFORE_S)
    is_same = state.grew_s is not None and seen.now_s - state.grew_s < HOLD_S
    return replace(state, grew_s=seen.now_s, grew_from=state.grew_from if is_same else level)


def _is_held(seen: Observation, state: SizingState) -> bool:
    """It has grown not long ago, and what it grew for is still there: no crowd that came and went."""
    if state.grew_s is None or seen.now_s - state.grew_s >= HOLD_S:
        return False
    return state.demand.level > state.grew_from


def _burst_s(model: IterationModel, mix: Mix, objectives: Objectives) -> float:
    settled_s = settling_s(model, mix, objectives)
    return min(max(settled_s, SHORTEST_BURST_S), LONGEST_BURST_S)


def _waiting(seen: Observation) -> int:
    queued = seen.gateway.queued if isinstance(seen.gateway, GatewayReading) else 0
    return queued + sum(reading.waiting for reading in seen.readings)


def _is_idle(seen: Observation) -> bool:
    gateway = seen.gateway
    if isinstance(gateway, GatewayReading) and gateway.queued + gateway.in_flight:
        return False
    return not any(reading.running + reading.waiting for reading in seen.readings)


class _Need:
    """One tick's inequality, with all its numbers."""

    def __init__(
        self, rule: Sizing, objectives: Objectives, seen: Observation, state: SizingState
    ) -> None:
        mix = state.traffic.mix
        assert mix is not None
        model = state.fit.model
        kv_tokens = min(
            (reading.kv_capacity_tokens for reading in state.readings.engines.values()),
            default=UNKNOWN_KV_TOKENS,
        )
        self._mix, self._demand, self._now_s = mix, state.demand, seen.now_s
        self._may_fail = 1 - objectives.attainment
        self._burst_s = _burst_s(model, mix, objectives)
        self.capacity: Capacity = capacity(
            model, mix, Room(kv_tokens, rule.max_num_seqs), objectives
        )
        # A request is also computed while the clock of its TTFT runs, beside what decodes.
        own_s = model.time_s(mix.uncached_tokens, 0, 0) / max(0.1, 1 - 0.5 * self.capacity.busy)
        self._slack_s = max(0.1 * objectives.ttft_s, objectives.ttft_s - own_s)
        self.horizon_s = state.startup.expected_s + 2 * rule.period_s
        self._backlog_s = rule.backlog * self._waiting_s(seen)

    @property
    def capacity_note(self) -> str:
        found = self.capacity
        return (
            f"a replica takes {found.rate:.2f} requests/s of {self._mix.prompt_tokens:.0f} and "
            f"{self._mix.output_tokens:.0f} tokens ({found.limit}), {found.busy:.0%} busy"
        )

    def replicas(
        self,
        share: float,
        longest_s: float,
        most_headroom: float = HEADROOMS[-1],
        *,
        is_sure: bool = False,
    ) -> tuple[int, str]:
        """The smallest number that holds at each horizon up to the longest, and why.

        share: of the requests that may fail. most_headroom: whatever was seen. is_sure: of the level
        only what is beyond doubt.
        """
        loss = share * self._may_fail
        found, level = self.capacity, self._demand.level
        request_s = found.work_s
        if is_sure:
            level *= self._demand.sure_share(self._now_s, request_s)
            most_headroom = 1 + (most_headroom - 1) * self._demand.known_share(self._now_s)
        headroom = self._demand.burst_headroom(longest_s, loss, request_s, self._burst_s)
        headroom = min(headroom, most_headroom)
        most = level * headroom / (found.in_time * request_s)
        why = f"bursts {headroom - 1:.0%} above it in {longest_s:.0f} s"
        for horizon_s in (*(h for h in HORIZONS_S if h < longest_s), longest_s):
            headroom = min(most_headroom, self._demand.headroom(horizon_s, loss, request_s))
            work = level * headroom * horizon_s
            if horizon_s >= min(longest_s, self.horizon_s):
                work += self._backlog_s
            needed = work / (found.kept_up * request_s * (horizon_s + self._slack_s))
            if needed > most:
                most = needed
                why = f"{headroom - 1:.0%} more within {horizon_s:.0f} s"
        note = f"{level / request_s:.2f} requests/s, and {why}, need {most:.2f}"
        return -int(-most // 1), note

    def _waiting_s(self, seen: Observation) -> float:
        pending = sum(reading.prefill_tokens_pending for reading in seen.readings)
        if isinstance(seen.gateway, GatewayReading):
            pending += seen.gateway.queued_prompt_tokens
        share = _waiting(seen) + pending / max(1.0, self._mix.prompt_tokens)
        return share / 2 * self.capacity.work_s
