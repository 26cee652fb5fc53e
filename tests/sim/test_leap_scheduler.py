"""A simulated engine gives the same times as the engine's scheduler that composes each iteration."""

from random import Random

import pytest

from penstock.sim.clock import Clock
from penstock.sim.engine.engine import Engine
from penstock.sim.engine.job import NO_TOKEN_IDS, sampling
from penstock.sim.profile import IterationTimes, Profile
from penstock.sim.request import Request, prompt_of
from penstock_engine.core.prefill_budget import PrefillBudget
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import SequenceOutput, Step

TIMES = IterationTimes(
    fixed_s=0.01, prompt_token_s=1e-4, pair_s=1e-8, sequence_s=1e-3, kv_token_s=1e-6
)
PREFIX_BLOCK_TOKENS = 16
Times = dict[str, tuple[float | None, float | None]]


def profile(kv_tokens: int) -> Profile:
    return Profile(
        name="test", source="made up", gpu="X", gpu_hour_price=1.0, times=TIMES, kv_tokens=kv_tokens,
        block_size=16, max_num_batched_tokens=400, max_num_seqs=24,
    )  # fmt: skip


def draw_requests(seed: int) -> list[Request]:
    random = Random(seed)
    arrivals = sorted(random.uniform(0, 12) for _ in range(60))
    return [
        Request(
            f"r{index}", at_s, random.randint(1, 700), random.choice((1, 2, 30, 150)),
            (*range(random.randrange(12)), 1000 + index),
        )
        for index, at_s in enumerate(arrivals)
    ]  # fmt: skip


class StepByStep:
    """The engine's scheduler with one iteration at a time."""

    def __init__(self, engine_profile: Profile, prefix_block_tokens: int) -> None:
        self._prefix_block_tokens = prefix_block_tokens
        self._budget = PrefillBudget()
        config = engine_profile.scheduler(prefix_block_tokens)
        self.scheduler = Scheduler(config, None, self._budget)
        self._decoding: set[str] = set()
        self.times: Times = {}

    def serve(self, requests: list[Request], tpot_s: float | None) -> None:
        now, to_come = 0.0, list(requests)
        while to_come or self.scheduler.has_work:
            if not self.scheduler.has_work:
                now = max(now, to_come[0].arrival_s)
            while to_come and to_come[0].arrival_s <= now:
                self._add(to_come.pop(0), tpot_s)
            step = self.scheduler.schedule(now)
            assert step is not None
            duration_s, prompt_tokens = self._measure(step)
            now += duration_s
            self._budget.observe_step(prompt_tokens, duration_s)
            self._complete(step, now)

    def _add(self, request: Request, tpot_s: float | None) -> None:
        prompt = prompt_of(request, self._prefix_block_tokens)
        max_tokens = sampling(request.output_tokens)
        sequence = Sequence(
            request.request_id, prompt, max_tokens, NO_TOKEN_IDS, request.arrival_s, tpot_s=tpot_s
        )
        assert self.scheduler.add(sequence) is None

    def _measure(self, step: Step) -> tuple[float, int]:
        """Duration of the step and its prompt tokens, those of preempted sequences included."""
        self._decoding &= {s.request_id for s in step.sequences}
        chunks = [s for s in step.sequences if s.request_id not in self._decoding]
        kv = sum(s.end for s in step.sequences if s.request_id in self._decoding)
        prompt_tokens = sum(s.num_tokens for s in chunks)
        pairs = sum(s.num_tokens * (s.start + s.num_tokens / 2) for s in chunks)
        return TIMES.iteration_s(prompt_tokens, pairs, len(self._decoding), kv), prompt_tokens

    def _complete(self, step: Step, now: float) -> None:
        sampled = [s.request_id for s in step.sequences if s.is_sampled]
        self._decoding |= set(sampled)
        outputs = {request_id: SequenceOutput((0,)) for request_id in sampled}
        for event in self.scheduler.complete(step, outputs, now):
            if event.finish_reason is not None:
                self._decoding.discard(event.request_id)
                self.times[event.request_id] = (event.first_token_s, now)


class Nobody:
    """Listener that ignores all events."""

    def started(self, request: Request) -> None: ...

    def ended(self, request: Request) -> None: ...


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("prefix_block_tokens", [0, PREFIX_BLOCK_TOKENS])
@pytest.mark.parametrize(
    ("max_iterations", "kv_tokens", "tpot_s"),
    [(64, 60_000, None), (1, 60_000, 0.05), (1, 4_000, 0.05), (1, 1_600, None)],
)
def test_leaps_give_the_times_of_single_steps(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    prefix_block_tokens: int,
    max_iterations: int,
    kv_tokens: int,
    tpot_s: float | None,
) -> None:
    """Leaps of one iteration are exact with any objective and any cache.

    Longer ones count once in the prefill budget, and hold their blocks from their start.
    """
    monkeypatch.setattr("penstock.sim.engine.leap_scheduler.MAX_ITERATIONS", max_iterations)
    stepwise = StepByStep(profile(kv_tokens), prefix_block_tokens)
    stepwise.serve(draw_requests(seed), tpot_s)
    requests = draw_requests(seed)
    clock = Clock()
    engine = Engine(profile(kv_tokens), clock, Nobody(), Random(0), prefix_block_tokens)
    for request in requests:
        clock.schedule_at(request.arrival_s, lambda request=request: engine.submit(request, tpot_s))
    for tenths in range(100):
        clock.schedule_at(tenths / 10, engine.scheduler.check)
    clock.run(10_000.0)

    expected = stepwise.scheduler.stats()
    assert engine.reading().preemptions == expected.preemptions
    assert engine.reading().output_tokens == expected.generation_tokens
    assert engine.reading().prompt_tokens == (
        expected.prompt_tokens_computed + expected.prompt_tokens_cached
    )
    assert engine.reading().cached_tokens == expected.prompt_tokens_cached
    for request in requests:
        times = (request.first_token_s, request.end_s)
        assert times == pytest.approx(stepwise.times[request.request_id], abs=1e-6)
