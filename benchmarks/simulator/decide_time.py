"""Measures the time of a scaling decision: a service of 200 pods, and 1,000 services in one tick.

    python -m benchmarks.simulator.decide_time [--ticks 60]

Bars: at 200 pods a median of at most 1 ms; 1,000 services of 1 to 8 pods within 1 s. Times are CPU time, to
exclude other work on the machine. Every tick has new readings, and the windows are full before the first
timing. Exits with 1 if a bar is missed.
"""

import sys
import time
from collections.abc import Callable
from random import Random
from statistics import median

from benchmarks.options import option_parser

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.by_objectives.state import ObjectivesState
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Observation,
    PodView,
    attended_tokens,
)
from penstock.core.spec.objectives import Objectives
from penstock_engine.contract.metric_types import BETWEEN_TOKENS_S, FIRST_TOKEN_S

RULE = ObjectivesRule(prior=IterationModel(0.011, 7e-5, 3e-5, 1.2e-7))
OBJECTIVES, BOUNDS = Objectives(2.0, 0.1), Bounds(1, 400)
PROMPT_TOKENS, OUTPUT_TOKENS, POD_RPS = 1000, 200, 5.0
BAR_ONE_S, BAR_TICK_S = 1e-3, 1.0


class SyntheticService:
    """Generates observations of a service with 5 requests/s per pod."""

    def __init__(self, pods: int, seed: int) -> None:
        self.pods = pods
        self.state: ObjectivesState = RULE.initial()
        self._draw = Random(seed)
        self._now_s = 1000.0 * seed
        self._done = [0] * pods

    def look(self) -> Observation:
        self._now_s += RULE.period_s
        for index in range(self.pods):
            mean = POD_RPS * RULE.period_s
            self._done[index] += max(0, round(self._draw.gauss(mean, mean**0.5)))
        pods = tuple(
            PodView(f"pod-{i}", "Ready", 0.0, 100.0, self._engine(done))
            for i, done in enumerate(self._done)
        )
        return Observation(self._now_s, pods, self.pods, self._gateway(sum(self._done)))

    def decide(self, seen: Observation) -> float:
        """CPU seconds of a decision."""
        began = time.process_time()
        _, self.state = RULE.decide(OBJECTIVES, BOUNDS, seen, self.state)
        return time.process_time() - began

    def _engine(self, done: int) -> EngineReading:
        tokens = done * OUTPUT_TOKENS
        steps = tokens // 20
        gaps = [0] * (len(BETWEEN_TOKENS_S) + 1)
        gaps[1] = tokens
        return EngineReading(
            at_s=self._now_s, running=20, waiting=0, kv_usage=0.1, kv_capacity_tokens=400_000,
            prefill_tokens_pending=0, prompt_tokens=done * PROMPT_TOKENS, cached_tokens=0,
            output_tokens=tokens, steps=steps, finished=done, output_tokens_finished=tokens,
            preemptions=0, ttft_s=_of(FIRST_TOKEN_S, done, 0.3 * done),
            itl_s=Histogram(BETWEEN_TOKENS_S, tuple(gaps), 0.02 * tokens),
        )  # fmt: skip

    def _gateway(self, done: int) -> GatewayReading:
        return GatewayReading(
            at_s=self._now_s, queued=0, queued_prompt_tokens=0, in_flight=20 * self.pods,
            in_flight_prefill_tokens=0, oldest_wait_s=0.0, arrivals=done,
            prompt_tokens=done * PROMPT_TOKENS, ended=done, output_tokens=done * OUTPUT_TOKENS,
            attended_tokens=done * attended_tokens(PROMPT_TOKENS, OUTPUT_TOKENS),
            shed=0, failed=0, late=0, ttft_s=_of(FIRST_TOKEN_S, done, 0.3 * done),
            tpot_s=_of(BETWEEN_TOKENS_S, done, 0.03 * done),
        )  # fmt: skip


def _of(bounds: tuple[float, ...], count: int, total: float) -> Histogram:
    return Histogram(bounds, (count, *(0 for _ in bounds)), total)


def warm(services: list[SyntheticService], ticks: int) -> None:
    for _ in range(ticks):
        for service in services:
            service.decide(service.look())


def main() -> int:
    parser = option_parser(__doc__)
    parser.add_argument("--ticks", type=int, default=60, help="that are timed")
    parser.add_argument("--warm", type=int, default=330, help="ticks before; 330 fill every window")
    options = parser.parse_args()
    large = SyntheticService(200, 1)
    warm([large], options.warm)
    one_s = median(large.decide(large.look()) for _ in range(options.ticks))
    many = [SyntheticService(1 + seed % 8, seed) for seed in range(1000)]
    warm(many, 35)  # windows a tenth as full, which saves only a few steps of a binary search
    tick_s = median(sum(service.decide(service.look()) for service in many) for _ in range(5))
    told: list[tuple[str, float, float, Callable[[float], str]]] = [
        ("one service of 200 pods, median", one_s, BAR_ONE_S, lambda s: f"{1e3 * s:.2f} ms"),
        ("1,000 services of 1 to 8 pods, a tick", tick_s, BAR_TICK_S, lambda s: f"{s:.2f} s"),
    ]
    for what, took_s, bar_s, form in told:
        verdict = "holds" if took_s <= bar_s else "MISSED"
        print(f"{what}: {form(took_s)} of {form(bar_s)}, {verdict}")
    return 0 if all(took_s <= bar_s for _, took_s, bar_s, _ in told) else 1


if __name__ == "__main__":
    sys.exit(main())
