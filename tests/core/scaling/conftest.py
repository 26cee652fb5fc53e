"""A synthetic service: observations for the scaling rule, computed without engines."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.by_objectives.tick import Settings, Tick
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.recording import RecordingWriter
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Missing,
    Observation,
    PodView,
    attended_tokens,
)
from penstock.core.scaling.variants.mixed import Variant
from penstock.core.spec.objectives import Objectives

PROMPT_TOKENS, OUTPUT_TOKENS = 500, 100
TRUE = IterationModel(0.02, 1e-4, 1e-4, 1e-7)


class SyntheticService:
    """draw: source of the numbers of arrivals and steps, and of lost metrics."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._now_s = 1_700_000_000.25
        self._arrivals = self._steps = 0
        self._gaps = self._gaps_s = 0.0

    def observe(self, replicas: int, mean_arrivals: float, *, losses: float = 0.0) -> Observation:
        draw = self._draw
        self._now_s += draw.uniform(1.9, 2.4)
        self._arrivals += sum(draw.random() < mean_arrivals / 100 for _ in range(100))
        steps = draw.randint(5, 60)
        self._steps += steps
        gaps = steps * draw.randint(1, 20)
        self._gaps += gaps
        self._gaps_s += gaps * TRUE.time_s(50, gaps / steps, 5000) * draw.gauss(1, 0.02)
        is_lost = draw.random() < losses
        gateway = Missing("gateway", "ReadTimeout") if is_lost else self._gateway()
        pods = [self._pod(n, is_lost=draw.random() < losses) for n in range(replicas)]
        return Observation(self._now_s, tuple(pods), replicas, gateway)

    def _pod(self, number: int, *, is_lost: bool) -> PodView:
        name = f"chat-{number}"
        reading = Missing(name, "ReadTimeout") if is_lost else self._engine()
        began_s = 1_700_000_000.0 - 50 * number
        return PodView(name, "Ready", began_s - 30, began_s, reading)

    def _engine(self) -> EngineReading:
        return EngineReading(
            at_s=self._now_s, running=4, waiting=0, kv_usage=0.25, kv_capacity_tokens=20_000,
            prefill_tokens_pending=0, prompt_tokens=PROMPT_TOKENS * self._arrivals,
            cached_tokens=100 * self._arrivals, output_tokens=OUTPUT_TOKENS * self._arrivals,
            steps=self._steps, finished=self._arrivals,
            output_tokens_finished=OUTPUT_TOKENS * self._arrivals, preemptions=0,
            ttft_s=Histogram((1.0,), (self._arrivals, 0), 0.3 * self._arrivals),
            itl_s=Histogram((1.0,), (int(self._gaps), 0), self._gaps_s),
        )  # fmt: skip

    def _gateway(self) -> GatewayReading:
        return GatewayReading(
            at_s=self._now_s, queued=0, queued_prompt_tokens=0, in_flight=4,
            in_flight_prefill_tokens=0, oldest_wait_s=0.0, arrivals=self._arrivals,
            prompt_tokens=PROMPT_TOKENS * self._arrivals, ended=self._arrivals,
            output_tokens=OUTPUT_TOKENS * self._arrivals,
            attended_tokens=attended_tokens(PROMPT_TOKENS, OUTPUT_TOKENS) * self._arrivals,
            shed=0, failed=0, late=0,
            ttft_s=Histogram((1.0,), (self._arrivals, 0), 0.4 * self._arrivals),
            tpot_s=Histogram((1.0,), (self._arrivals, 0), 0.03 * self._arrivals),
        )  # fmt: skip


SETTINGS = Settings(
    ObjectivesRule(prior=IterationModel(0.05, 3e-4, 1e-4, 1e-7), max_num_seqs=64),
    Objectives(2.0, 0.1),
    Bounds(1, 10),
    max_num_batched_tokens=512,
)


def live(
    seed: int,
    ticks: int,
    *,
    mean_arrivals: float = 3.0,
    losses: float = 0.0,
    skip: int = 0,
    variants: tuple[Variant, ...] = (),
) -> Iterator[Tick]:
    """Ticks of a service whose number is as decided, from the one after `skip` on."""
    settings = replace(SETTINGS, rule=replace(SETTINGS.rule, variants=variants))
    service, replicas = SyntheticService(random.Random(seed)), 1
    by_variant = {variant.name: int(i == 0) for i, variant in enumerate(variants)}
    state = settings.rule.initial()
    for number in range(ticks):
        now = service.observe(replicas, mean_arrivals, losses=losses)
        if variants:
            names = [name for name, count in by_variant.items() for _ in range(count)]
            pods = (replace(p, variant=n) for p, n in zip(now.pods, names, strict=True))
            now = replace(now, pods=tuple(pods), by_variant=by_variant)
        decision, after = settings.rule.decide(settings.objectives, settings.bounds, now, state)
        if number >= skip:
            yield Tick(settings, state, now, decision)
        state, replicas, by_variant = after, decision.desired, decision.by_variant


def written(ticks: Iterator[Tick]) -> list[str]:
    writer = RecordingWriter("default/chat")
    return [line for tick in ticks for line in writer.lines(tick)]


@pytest.fixture(name="live", scope="session")
def live_fixture() -> object:
    return live


@pytest.fixture(name="written", scope="session")
def written_fixture() -> object:
    return written
