"""NVIDIA Dynamo planner, load mode: steps of one replica by the predicted latency of every worker.

Source: ai-dynamo components/src/dynamo/planner/core/load_scaling.py, aggregated engines, SLA target.
It scales up only if all workers would be late. It scales down only if the others, at N / (N - 1) of the
load, would keep the queueing part of TTFT within the sensitivity and fit the KV cache. It waits while a
scaling is in progress. Dynamo fits its model on forward passes; here it is a measured profile. Requests in
the gateway's queue count as queued at the workers.
"""

from dataclasses import dataclass, field, replace

from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.rule import Bounds, Decision, TrailEntry
from penstock.core.scaling.signals import EngineReading, Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.answer import decided, held, unchanged
from penstock.sim.baselines.dynamo_model import next_ttft_s
from penstock.sim.baselines.dynamo_throughput import DynamoThroughput, ThroughputState
from penstock.sim.baselines.hit_rate import hit_rate
from penstock.sim.baselines.load import held_back, readings_by_pod

SAMPLES = 12
"""Scrapes in the means of prompt length, output length and prefill per iteration: one minute."""


@dataclass(frozen=True, slots=True)
class LoadState:
    """State of the rule. readings: per scrape a mapping from pod to reading, oldest first."""

    readings: tuple[dict[str, EngineReading], ...] = ()
    floor: int = 1
    next_floor_s: float | None = None
    throughput: ThroughputState = field(default_factory=ThroughputState)


@dataclass(frozen=True, slots=True)
class Averages:
    prompt_tokens: float
    prefill_tokens_per_step: float
    context_tokens: float
    hit_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoLoad:
    """Load rule. throughput: sets the minimum if both modes are on. down_sensitivity: published as 0.8."""

    profile: EngineProfile
    objective_share: float = 1.0
    down_sensitivity: float = 0.8
    throughput: DynamoThroughput | None = None
    period_s: float = 5.0

    def initial(self) -> LoadState:
        return LoadState()

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: LoadState
    ) -> tuple[Decision, LoadState]:
        state = self._floored(objectives, bounds, seen, state)
        by_pod, n = readings_by_pod(seen), seen.provisioned
        state = replace(state, readings=(*state.readings[1 - SAMPLES :], by_pod))
        if len(seen.ready) != n or seen.starting:
            return unchanged(bounds, seen, "A scaling is under way.", "InProgress"), state
        if not by_pod or len(by_pod) != n:
            return held(bounds, seen, "Not every worker reports.", "WorkerCountMismatch"), state
        usual = _averages(state.readings)
        held_tokens = round(held_back(seen)[1])
        workers = tuple(
            replace(r, prefill_tokens_pending=r.prefill_tokens_pending + held_tokens)
            for r in by_pod.values()
        )
        wanted, why = self.step(objectives, workers, usual)
        trail: tuple[TrailEntry, ...] = (TrailEntry("load", wanted, why),)
        if state.floor > wanted:
            trail += (TrailEntry("throughput floor", state.floor, "of the last interval"),)
            wanted = state.floor
        return decided(bounds, seen, wanted, why, trail), state

    def step(
        self, objectives: Objectives, workers: tuple[EngineReading, ...], usual: Averages
    ) -> tuple[int, str]:
        """Replicas before floor and bounds: one more, one fewer or unchanged; and the reason."""
        n = len(workers)
        ttft_goal = objectives.ttft_s * self.objective_share
        itl_goal = objectives.tpot_s * self.objective_share
        ttfts = [self._ttft_s(w, usual, 1.0) for w in workers]
        itls = [self._itl_s(w, usual, 1.0) for w in workers]
        why = (
            f"TTFT {max(ttfts):.2f} s, ITL {max(itls) * 1000:.0f} ms predicted at the worst worker"
        )
        if min(ttfts) > ttft_goal or min(itls) > itl_goal:
            return n + 1, why
        if n > 1 and all(self._could_take(w, usual, n, ttft_goal, itl_goal) for w in workers):
            return n - 1, why
        return n, why

    def _could_take(
        self, worker: EngineReading, usual: Averages, n: int, ttft_goal: float, itl_goal: float
    ) -> bool:
        more = n / (n - 1)
        own = self._ttft_s(worker, usual, more, queued_tokens=0.0)
        queue_part = self._ttft_s(worker, usual, more) - own
        kv = (worker.kv_tokens + worker.prefill_tokens_pending) * more
        return (
            queue_part < (ttft_goal - own) * self.down_sensitivity
            and kv < self.profile.kv_capacity_tokens
            and self._itl_s(worker, usual, more, worker.prefill_tokens_pending)
            < itl_goal * self.down_sensitivity
        )

    def _ttft_s(
        self,
        worker: EngineReading,
        usual: Averages,
        more: float,
        queued_tokens: float | None = None,
    ) -> float:
        queued = worker.prefill_tokens_pending * more if queued_tokens is None else queued_tokens
        left = 1 - usual.hit_rate
        running, kv = worker.running * more, worker.kv_tokens * more
        return next_ttft_s(self.profile, queued * left, usual.prompt_tokens * left, running, kv)

    def _itl_s(
        self, worker: EngineReading, usual: Averages, more: float, queued: float = 0.0
    ) -> float:
        kv = (worker.kv_tokens + queued) * more + usual.context_tokens
        running = worker.running * more
        return self.profile.iteration_s(usual.prefill_tokens_per_step, running, kv)

    def _floored(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: LoadState
    ) -> LoadState:
        if self.throughput is None:
            return state
        if state.next_floor_s is not None and seen.now_s < state.next_floor_s - 1e-6:
            return state
        decision, inner = self.throughput.decide(objectives, bounds, seen, state.throughput)
        says = [e.replicas for e in decision.trail if e.step == "throughput"]
        return replace(
            state,
            throughput=inner,
            floor=says[0] if says else state.floor,
            next_floor_s=seen.now_s + self.throughput.period_s,
        )


def _averages(scrapes: tuple[dict[str, EngineReading], ...]) -> Averages:
    first, last = scrapes[0], scrapes[-1]
    pairs = [(first[name], r) for name, r in last.items() if name in first]
    prompts = sum(r.ttft_s.count - b.ttft_s.count for b, r in pairs)
    tokens = sum(r.prompt_tokens - b.prompt_tokens for b, r in pairs)
    steps = sum(r.steps - b.steps for b, r in pairs)
    running = sum(r.running for r in last.values())
    kv = sum(r.kv_tokens for r in last.values())
    before = {name: (b.prompt_tokens, b.cached_tokens) for name, b in first.items()}
    now = {n: (r.prompt_tokens, r.cached_tokens) for n, r in last.items() if n in first}
    cached = hit_rate(before, now)
    return Averages(
        prompt_tokens=tokens / prompts if prompts else 0.0,
        prefill_tokens_per_step=tokens * (1 - cached) / steps if steps else 0.0,
        context_tokens=kv / running if running else 0.0,
        hit_rate=cached,
    )
