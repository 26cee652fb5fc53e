"""Iteration times are learned from engine readings that count a prompt only when it is complete."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from penstock.core.engine_time.iteration import Fit, IterationModel
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.learned.watch import ENOUGH_PROMPTS, MAX_SPANS, Span, Watch
from penstock.core.scaling.signals import EngineReading

TRUE = IterationModel(base_s=0.011, prefill_token_s=70e-6, sequence_s=30e-6, kv_token_s=120e-9)
PRIOR = IterationModel(base_s=0.012, prefill_token_s=80e-6, sequence_s=25e-6, kv_token_s=100e-9)
TYPICAL = (800.0, 110.0, 150_000.0)
INTERVAL_S = 2.0


@dataclass
class Engine:
    """Simulated engine that always has prompts to compute: they get the rest of `step_s` in each step."""

    draw: random.Random
    step_s: float | None = 0.09
    at_s: float = 0.0
    steps: int = 0
    prompts: int = 0
    prompt_tokens: int = 0
    left: float = 0.0
    gaps: float = 0.0
    gaps_s: float = 0.0
    busy_s: float | None = 0.0
    kv: float = 150_000.0
    sequences: int = 110
    lengths: list[int] = field(default_factory=list)

    def read(self) -> EngineReading:
        until_s = self.at_s + INTERVAL_S
        while self.at_s < until_s:
            self._step()
        return EngineReading(
            at_s=self.at_s, running=self.sequences + 1, waiting=3, kv_usage=self.kv / 400_000,
            kv_capacity_tokens=400_000, prefill_tokens_pending=round(self.left),
            prompt_tokens=self.prompt_tokens, cached_tokens=0, output_tokens=round(self.gaps),
            steps=self.steps, finished=self.prompts, output_tokens_finished=0, preemptions=0,
            ttft_s=Histogram((1.0,), (self.prompts, 0), 0.0),
            itl_s=Histogram((1.0,), (round(self.gaps), 0), self.gaps_s), busy_s=self.busy_s,
        )  # fmt: skip

    def _step(self) -> None:
        self.kv = min(200_000.0, max(100_000.0, self.kv + self.draw.gauss(0, 2_000)))
        alone_s = TRUE.time_s(0, self.sequences, self.kv)
        tokens = (self.step_s - alone_s) / TRUE.prefill_token_s if self.step_s else 700.0
        self._compute(tokens)
        took_s = TRUE.time_s(tokens, self.sequences, self.kv)
        self.at_s += took_s
        self.steps += 1
        self.gaps += self.sequences
        self.gaps_s += self.sequences * took_s
        if self.busy_s is not None:
            self.busy_s += took_s

    def _compute(self, tokens: float) -> None:
        while tokens > 0:
            if self.left <= 0:
                self.lengths.append(int(self.draw.lognormvariate(6.9, 0.8)) + 1)
                self.left = self.lengths[-1]
            done = min(tokens, self.left)
            tokens, self.left = tokens - done, self.left - done
            if self.left <= 0:
                self.prompts += 1
                self.prompt_tokens += self.lengths[-1]


def watched(engines: list[Engine], readings: int) -> Iterator[Watch]:
    watch, before = Watch(Fit.around(PRIOR)), [engine.read() for engine in engines]
    for _ in range(readings):
        after = [engine.read() for engine in engines]
        pairs = {f"p{i}": pair for i, pair in enumerate(zip(before, after, strict=True))}
        watch, before = watch.updated(pairs, 1_100.0), after
        yield watch


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_iterations_that_are_kept_alike_do_not_make_prompts_free(seed: int, is_told: bool) -> None:
    """Four engines run half an hour under full load with iterations of 90 ms. Between two readings the
    count of prompt tokens is off by half a prompt. Without a correction, the fit after ten minutes
    would be that prompts cost nothing and every iteration takes 83 ms."""
    draw = random.Random(seed)
    busy_s = 0.0 if is_told else None
    engines = [Engine(random.Random(draw.random()), busy_s=busy_s) for _ in range(4)]
    *_, last = watched(engines, 900)
    model = last.fit.model
    assert last.fit.windows > 15
    assert model.time_s(*TYPICAL) == pytest.approx(TRUE.time_s(*TYPICAL), rel=0.05)
    assert model.prefill_token_s == pytest.approx(TRUE.prefill_token_s, rel=0.3)
    assert model.base_s == pytest.approx(TRUE.base_s, rel=0.5)


def test_a_window_is_as_long_as_its_prompts_need() -> None:
    """Two readings when nobody waits at either end; else until there were enough prompts."""
    busy = Engine(random.Random(1))
    *_, last = watched([busy], 60)
    prompts_per_reading = busy.prompts / 61
    assert last.fit.windows == pytest.approx(
        60 * prompts_per_reading / (ENOUGH_PROMPTS + prompts_per_reading), abs=1
    )


def test_so_many_are_watched_at_a_time_and_all_in_turn() -> None:
    engines = [Engine(random.Random(i)) for i in range(2 * MAX_SPANS)]
    seen: set[str] = set()
    for watch in watched(engines, 150):
        assert len(watch.spans) == MAX_SPANS
        seen |= watch.spans.keys()
    assert len(seen) == len(engines)


def test_who_is_gone_is_looked_at_no_more() -> None:
    engines = [Engine(random.Random(i)) for i in range(3)]
    *_, last = watched(engines, 2)
    reading = engines[0].read()
    assert last.updated({"p0": (reading, engines[0].read())}, 1_100.0).spans.keys() == {"p0"}


def _engine(at_s: float, steps: int, running: int, busy_s: float | None) -> EngineReading:
    """Each step has 8 tokens."""
    told = replace(Engine(random.Random(1)).read(), waiting=0, prefill_tokens_pending=0)
    gaps = Histogram((1.0,), (8 * steps, 0), 0.16 * steps)
    return replace(told, at_s=at_s, steps=steps, running=running, itl_s=gaps, busy_s=busy_s)


@pytest.mark.parametrize(
    ("before", "after", "is_alike"),
    [
        (0, 8, True),
        (60, 66, True),
        (60, 40, True),
        (0, 40, False),
        (40, 120, False),
        (90, 30, False),
    ],
)
def test_a_batch_that_changed_tells_nothing_unless_the_engine_tells_its_time(
    before: int, after: int, is_alike: bool
) -> None:
    for busy_s, is_told in ((None, is_alike), (0.0, True)):
        readings = [
            _engine(2.0 * n, 50 * n, running, None if busy_s is None else 1.1 * n)
            for n, running in enumerate((before, before, after))
        ]
        watch = Watch(Fit.around(PRIOR)).updated({"p0": (readings[0], readings[0])}, 0.0)
        watch = watch.updated({"p0": (readings[0], readings[2])}, 0.0)
        assert (watch.fit.windows > 0) == is_told


def test_what_is_held_counts_by_the_iterations_that_hold_it() -> None:
    """The KV cache is empty for 10 iterations, then holds 300 tokens for 90 iterations."""
    first, busy = _engine(0.0, 0, 8, 0.0), _engine(2.0, 10, 8, 0.2)
    first, busy = replace(first, kv_usage=0.0), replace(busy, kv_usage=0.0)
    last = replace(_engine(4.0, 100, 8, 2.0), kv_usage=600 / 400_000)
    window = Span.starting_at(first).updated(first, busy).updated(busy, last).window(last, 0.0)
    assert window is not None
    assert window.kv_tokens == pytest.approx(270)
