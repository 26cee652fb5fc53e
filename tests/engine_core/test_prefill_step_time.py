"""Tests that steps with prompts are short enough for the TPOT objectives of decoding sequences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.core.prefill_budget import (
    MAX_TPOT_FRACTION,
    MIN_PREFILL_FRACTION,
    PrefillBudget,
)
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import SequenceOutput, Step

# Seconds of a step, and of one of its prompt tokens.
STEP_S, TOKEN_S = 0.02, 1e-4
BUDGET = 4096


def test_no_estimate_before_a_step_with_a_prompt() -> None:
    budget = PrefillBudget()
    budget.observe_step(0, STEP_S)
    assert budget.max_prompt_tokens(0.1) is None


def test_the_estimate_uses_steps_with_and_without_prompts() -> None:
    budget = PrefillBudget()
    for prompt_tokens in (0, 4000, 0, 500, 0, 1000):
        budget.observe_step(prompt_tokens, STEP_S + TOKEN_S * prompt_tokens)
    assert budget.max_prompt_tokens(0.1) == pytest.approx(800, abs=1)
    assert budget.max_prompt_tokens(0.01) == pytest.approx(
        MIN_PREFILL_FRACTION * STEP_S / TOKEN_S, abs=1
    )


def test_the_estimate_follows_a_slower_device_within_a_few_steps() -> None:
    budget = PrefillBudget()
    for _ in range(200):
        budget.observe_step(800, STEP_S + TOKEN_S * 800)
    for _ in range(25):
        budget.observe_step(800, 4 * (STEP_S + TOKEN_S * 800))
    assert budget.max_prompt_tokens(0.4) == pytest.approx(800, rel=0.1)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 10)), max_size=30), st.floats(0, 10))
def test_the_estimate_is_never_negative(steps: list[tuple[int, float]], within_s: float) -> None:
    budget = PrefillBudget()
    for prompt_tokens, duration_s in steps:
        budget.observe_step(prompt_tokens, duration_s)
    fitting = budget.max_prompt_tokens(within_s)
    assert fitting is None or fitting >= 0


class SimulatedDevice:
    """Runs the steps of a scheduler with simulated durations."""

    def __init__(self) -> None:
        config = SchedulerConfig(
            max_num_seqs=64, max_num_batched_tokens=BUDGET, max_model_len=100_000, block_size=16,
            num_blocks=50_000, prefix_caching=False,
        )  # fmt: skip
        self.scheduler = Scheduler(config)
        self.now_s = 0.0

    def add(self, name: str, prompt_tokens: int, max_tokens: int, tpot_s: float | None) -> None:
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        self.scheduler.add(
            Sequence(name, [1] * prompt_tokens, sampling, frozenset(), self.now_s, tpot_s=tpot_s)
        )

    def step(self) -> tuple[Step, float]:
        step = self.scheduler.schedule(self.now_s)
        assert step is not None
        took_s = STEP_S + TOKEN_S * step.num_prompt_tokens
        self.now_s += took_s
        sampled = {s.request_id: SequenceOutput((7,)) for s in step.sequences if s.is_sampled}
        self.scheduler.complete(step, sampled, self.now_s)
        self.scheduler.check()
        return step, took_s


def loaded(tpot_s: float | None) -> SimulatedDevice:
    """Returns a device with eight decoding sequences and four waiting prompts of 20,000 tokens."""
    device = SimulatedDevice()
    for index in range(8):
        device.add(f"decode-{index}", 50, 10_000, tpot_s)
    for _ in range(5):
        device.step()
    for index in range(4):
        device.add(f"prompt-{index}", 20_000, 5, None)
    return device


@pytest.mark.slow
@pytest.mark.parametrize("tpot_s", [0.05, 0.1, 0.3])
def test_steps_with_prompts_meet_the_tpot_objective(tpot_s: float) -> None:
    device = loaded(tpot_s)
    steps = [device.step() for _ in range(400)]
    assert max(took_s for _, took_s in steps) <= tpot_s
    # The steps are no shorter than necessary: the prompts take about the minimum number of steps.
    fitting = (MAX_TPOT_FRACTION * tpot_s - STEP_S) / TOKEN_S
    with_prompts = [step for step, _ in steps if step.num_prompt_tokens]
    assert sum(step.num_prompt_tokens for step in with_prompts) == 4 * 20_000
    assert len(with_prompts) <= 1.1 * 4 * 20_000 / fitting + 2


def test_prompts_use_the_whole_budget_without_an_objective() -> None:
    device = loaded(None)
    assert device.step()[0].num_tokens == BUDGET


def test_prompts_progress_even_with_an_unreachable_objective() -> None:
    device = loaded(0.001)
    for _ in range(40):  # the first steps, before any without prompts, are forgotten
        device.step()
    least_tokens = MIN_PREFILL_FRACTION * STEP_S / TOKEN_S
    for _ in range(20):
        assert device.step()[0].num_prompt_tokens >= 0.9 * least_tokens


def test_the_budget_is_unlimited_after_streams_with_objectives_end() -> None:
    device = loaded(0.1)
    device.step()
    for index in range(8):
        assert device.scheduler.token_budget < BUDGET
        device.scheduler.abort(f"decode-{index}", device.now_s)
    assert device.scheduler.token_budget == BUDGET
