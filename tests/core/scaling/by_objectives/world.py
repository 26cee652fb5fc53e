"""Observations of a service, made by hand, and a simulated service that follows the rule."""

from dataclasses import replace

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Observation,
    PodView,
    attended_tokens,
)
from penstock.core.spec.objectives import Objectives

STARTUP_S = 100.0
MODEL = IterationModel(0.015, 6e-5, 3e-5, 5e-8)
RULE = ObjectivesRule(prior=MODEL, startup_s=STARTUP_S)
OBJECTIVES = Objectives(3.0, 0.1)
EMPTY = Histogram((1.0,), (0, 0), 0.0)
PROMPT_TOKENS, OUTPUT_TOKENS = 2000, 300


def engine(at_s: float, done: int, running: int = 0) -> EngineReading:
    return EngineReading(
        at_s=at_s, running=running, waiting=0, kv_usage=0.1, kv_capacity_tokens=300_000,
        prefill_tokens_pending=0, prompt_tokens=done * PROMPT_TOKENS, cached_tokens=0,
        output_tokens=done * OUTPUT_TOKENS, steps=0, finished=done,
        output_tokens_finished=done * OUTPUT_TOKENS, preemptions=0, ttft_s=EMPTY, itl_s=EMPTY,
    )  # fmt: skip


def gateway(
    at_s: float, arrivals: int, queued: int = 0, in_flight: int = 0, late: int = 0
) -> GatewayReading:
    return GatewayReading(
        at_s=at_s, queued=queued, queued_prompt_tokens=queued * PROMPT_TOKENS, in_flight=in_flight,
        in_flight_prefill_tokens=0, oldest_wait_s=0.0, arrivals=arrivals,
        prompt_tokens=arrivals * PROMPT_TOKENS, ended=arrivals,
        output_tokens=arrivals * OUTPUT_TOKENS,
        attended_tokens=arrivals * attended_tokens(PROMPT_TOKENS, OUTPUT_TOKENS), shed=0, failed=0,
        late=late, ttft_s=Histogram((1.0,), (arrivals, 0), 0.0), tpot_s=EMPTY,
    )  # fmt: skip


class World:
    """Simulated service: replicas start and stop at once, requests arrive evenly and end at once.

    late: fraction of the requests that miss an objective.
    """

    def __init__(
        self, replicas: int, bounds: Bounds, rule: ObjectivesRule = RULE, late: float = 0.0
    ) -> None:
        self.replicas, self.bounds, self.rule, self.late = replicas, bounds, rule, late
        self.state = rule.initial()
        self.now_s, self.arrivals = 0.0, 0.0
        self.decision: Decision | None = None
        self.max_num_seqs: int | None = None
        self.objectives = OBJECTIVES

    def runs(self, seconds: float, rate: float, **changes: object) -> list[int]:
        """The numbers asked for. changes: of each observation."""
        asked = []
        for _ in range(round(seconds / RULE.period_s)):
            self.now_s += RULE.period_s
            self.arrivals += rate * RULE.period_s
            self.decision, self.state = self.rule.decide(
                self.objectives, self.bounds, replace(self.observation(), **changes), self.state
            )
            self.replicas = self.decision.desired
            asked.append(self.replicas)
        return asked

    def runs_until_another_number(self, rate: float, most_s: float) -> int:
        """The first number that differs from the present one. Raises StopIteration if there is none."""
        before, steps = self.replicas, range(round(most_s / RULE.period_s))
        asked = (self.runs(RULE.period_s, rate)[0] for _ in steps)
        return next(replicas for replicas in asked if replicas != before)

    def observation(self) -> Observation:
        share = int(self.arrivals) // max(1, self.replicas)
        reading = replace(engine(self.now_s, share), max_num_seqs=self.max_num_seqs)
        pods = tuple(PodView(f"pod-{i}", "Ready", 0.0, 0.0, reading) for i in range(self.replicas))
        arrivals = int(self.arrivals)
        seen = gateway(self.now_s, arrivals, late=int(self.late * arrivals))
        return Observation(self.now_s, pods, self.replicas, seen)


def needed(rate: float) -> float:
    """Replicas that a steady rate keeps busy."""
    world = World(20, Bounds(20, 20))
    world.runs(120, rate)
    return world.state.forecast.now.load


def note(decision: Decision | None, step: str) -> str:
    assert decision is not None
    return next(entry.note for entry in decision.trail if entry.step == step)
