"""Tests of the prefill budget: exact values for given step times and TPOT objectives."""

import pytest

from penstock_engine.core.prefill_budget import (
    DECODING_DECAY,
    MAX_TPOT_FRACTION,
    MIN_PREFILL_FRACTION,
    PROMPTS_DECAY,
    PrefillBudget,
)
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.sequence import Sequence

MOST = 5000


def decoding(name: str, tpot_s: float | None, first_token_s: float | None = 1.0) -> Sequence:
    one = Sequence(name, [1], SamplingParams(max_tokens=9), frozenset(), 0.0, tpot_s=tpot_s)
    one.first_token_s = first_token_s
    return one


def budget_after(decoding_s: float = 0.02, token_s: float = 1e-4) -> PrefillBudget:
    budget = PrefillBudget()
    for prompt_tokens in (0, 1000):
        budget.observe_step(prompt_tokens, decoding_s + token_s * prompt_tokens)
    return budget


def tokens_that_fit(tpot_s: float, decoding_s: float = 0.02, token_s: float = 1e-4) -> int:
    return round((MAX_TPOT_FRACTION * tpot_s - decoding_s) / token_s)


@pytest.mark.parametrize(
    ("tpots_s", "expected"),
    [
        ([], MOST),
        ([None], MOST),
        ([0.1], 3 + tokens_that_fit(0.1)),
        ([0.2, 0.1, None, 0.3], 3 + tokens_that_fit(0.1)),  # the smallest objective counts
        ([9.0], MOST),
        ([0.001], 3 + round(MIN_PREFILL_FRACTION * 0.02 / 1e-4)),
    ],
)
def test_the_smallest_tpot_objective_limits_the_step(
    tpots_s: list[float | None], expected: int
) -> None:
    """The budget is one token for each of three streams, plus the prompt tokens that fit."""
    budget = budget_after()
    for index, tpot_s in enumerate(tpots_s):
        budget.add_decoding(decoding(str(index), tpot_s))
    assert budget.token_budget(MOST, 3) == pytest.approx(expected, abs=1)
    assert budget.token_budget(7, 3) == 7


def test_the_budget_is_unlimited_without_observations() -> None:
    budget = PrefillBudget()
    budget.add_decoding(decoding("a", 0.1))
    budget.observe_step(0, 0.02)
    assert budget.token_budget(MOST, 3) == MOST


def test_at_least_one_prompt_token_fits() -> None:
    budget = budget_after(decoding_s=0.001, token_s=0.5)
    budget.add_decoding(decoding("a", 0.002))
    assert budget.max_prompt_tokens(0.002 * MAX_TPOT_FRACTION) == 0
    assert budget.token_budget(MOST, 3) == 3 + 1


def test_each_stream_with_an_objective_is_counted() -> None:
    """Two streams have the same objective; it holds until both have ended."""
    budget = budget_after()
    streams = [decoding("a", 0.1), decoding("b", 0.1), decoding("c", 0.2), decoding("d", None)]
    waiting = decoding("waiting", 0.05, first_token_s=None)
    for stream in streams:
        budget.add_decoding(stream)
    budget.check([*streams, waiting])
    budgets = []
    for ended in (waiting, *streams):
        budget.remove_decoding(ended)
        budgets.append(budget.token_budget(MOST, 0))
    budget.check([waiting])
    expected = [tokens_that_fit(0.1), tokens_that_fit(0.1), tokens_that_fit(0.2), MOST, MOST]
    assert budgets == pytest.approx(expected, abs=1)


def test_check_finds_missing_and_extra_streams() -> None:
    budget = PrefillBudget()
    budget.add_decoding(decoding("a", 0.1))
    with pytest.raises(AssertionError):
        budget.check([])
    with pytest.raises(AssertionError):
        PrefillBudget().check([decoding("a", 0.1)])


def test_step_and_token_times_are_decaying_means() -> None:
    """The time of prompt tokens is what exceeds the time of steps without prompts."""
    budget = PrefillBudget()
    for duration_s in (0.02, 0.04):
        budget.observe_step(0, duration_s)
    decoding_s = (DECODING_DECAY * 0.02 + 0.04) / (DECODING_DECAY + 1)
    for prompt_tokens, duration_s in ((1000, 0.2), (500, 0.3), (700, 0.01)):
        budget.observe_step(prompt_tokens, duration_s)
    tokens = tokens_s = 0.0
    for prompt_tokens, rest_s in ((1000, 0.2 - decoding_s), (500, 0.3 - decoding_s), (700, 0.0)):
        tokens = PROMPTS_DECAY * tokens + prompt_tokens
        tokens_s = PROMPTS_DECAY * tokens_s + rest_s
    for within_s in (0.1, 0.5):
        expected = int((within_s - decoding_s) * tokens / tokens_s)
        assert budget.max_prompt_tokens(within_s) == expected > 100
    assert (
        budget.max_prompt_tokens(0.0)
        == int(MIN_PREFILL_FRACTION * decoding_s * tokens / tokens_s)
        > 0
    )


@pytest.mark.parametrize(("rest_s", "is_known"), [(0.9e-6, False), (1e-6, True), (0.5, True)])
def test_a_step_without_duration_gives_no_estimate(rest_s: float, is_known: bool) -> None:
    budget = PrefillBudget()
    budget.observe_step(10, rest_s)
    assert (budget.max_prompt_tokens(0.1) is not None) == is_known


def test_all_time_is_of_prompts_without_a_step_of_decodes_only() -> None:
    budget = PrefillBudget()
    budget.observe_step(1000, 0.1)
    assert budget.max_prompt_tokens(0.05) == pytest.approx(500, abs=1)
