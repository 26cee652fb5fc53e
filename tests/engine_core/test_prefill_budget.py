"""The budget of a step, from what was learned: exact numbers."""

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


def learnt(decoding_s: float = 0.02, token_s: float = 1e-4) -> PrefillBudget:
    pace = PrefillBudget()
    for prompt_tokens in (0, 1000):
        pace.observe_step(prompt_tokens, decoding_s + token_s * prompt_tokens)
    return pace


def fitting(tpot_s: float, decoding_s: float = 0.02, token_s: float = 1e-4) -> int:
    return round((MAX_TPOT_FRACTION * tpot_s - decoding_s) / token_s)


@pytest.mark.parametrize(
    ("tpots_s", "expected"),
    [
        ([], MOST),
        ([None], MOST),
        ([0.1], 3 + fitting(0.1)),
        ([0.2, 0.1, None, 0.3], 3 + fitting(0.1)),  # the least patient counts
        ([9.0], MOST),
        ([0.001], 3 + round(MIN_PREFILL_FRACTION * 0.02 / 1e-4)),
    ],
)
def test_a_step_has_what_the_least_patient_stream_allows(
    tpots_s: list[float | None], expected: int
) -> None:
    """A token for each of three that run, and prompt tokens that fit beside them."""
    pace = learnt()
    for index, tpot_s in enumerate(tpots_s):
        pace.add_decoding(decoding(str(index), tpot_s))
    assert pace.token_budget(MOST, 3) == pytest.approx(expected, abs=1)
    assert pace.token_budget(7, 3) == 7


def test_before_anything_is_learned_the_budget_is_whole() -> None:
    pace = PrefillBudget()
    pace.add_decoding(decoding("a", 0.1))
    pace.observe_step(0, 0.02)
    assert pace.token_budget(MOST, 3) == MOST


def test_one_prompt_token_is_computed_however_dear_it_is() -> None:
    pace = learnt(decoding_s=0.001, token_s=0.5)
    pace.add_decoding(decoding("a", 0.002))
    assert pace.max_prompt_tokens(0.002 * MAX_TPOT_FRACTION) == 0
    assert pace.token_budget(MOST, 3) == 3 + 1


def test_who_minds_is_counted_as_often_as_it_does() -> None:
    """Two of the same patience: the first that ends leaves the other."""
    pace = learnt()
    streams = [decoding("a", 0.1), decoding("b", 0.1), decoding("c", 0.2), decoding("d", None)]
    waiting = decoding("waiting", 0.05, first_token_s=None)
    for stream in streams:
        pace.add_decoding(stream)
    pace.check([*streams, waiting])
    budgets = []
    for ended in (waiting, *streams):
        pace.remove_decoding(ended)
        budgets.append(pace.token_budget(MOST, 0))
    pace.check([waiting])
    expected = [fitting(0.1), fitting(0.1), fitting(0.2), MOST, MOST]
    assert budgets == pytest.approx(expected, abs=1)


def test_books_that_do_not_balance_are_found() -> None:
    pace = PrefillBudget()
    pace.add_decoding(decoding("a", 0.1))
    with pytest.raises(AssertionError):
        pace.check([])
    with pytest.raises(AssertionError):
        PrefillBudget().check([decoding("a", 0.1)])


def test_both_prices_are_means_of_the_last_steps() -> None:
    """Each step weighs what is left of it after those behind it; what a prompt takes is the rest."""
    pace = PrefillBudget()
    for duration_s in (0.02, 0.04):
        pace.observe_step(0, duration_s)
    decoding_s = (DECODING_DECAY * 0.02 + 0.04) / (DECODING_DECAY + 1)
    for prompt_tokens, duration_s in ((1000, 0.2), (500, 0.3), (700, 0.01)):
        pace.observe_step(prompt_tokens, duration_s)
    tokens = tokens_s = 0.0
    for prompt_tokens, rest_s in ((1000, 0.2 - decoding_s), (500, 0.3 - decoding_s), (700, 0.0)):
        tokens = PROMPTS_DECAY * tokens + prompt_tokens
        tokens_s = PROMPTS_DECAY * tokens_s + rest_s
    for within_s in (0.1, 0.5):
        expected = int((within_s - decoding_s) * tokens / tokens_s)
        assert pace.max_prompt_tokens(within_s) == expected > 100
    assert (
        pace.max_prompt_tokens(0.0)
        == int(MIN_PREFILL_FRACTION * decoding_s * tokens / tokens_s)
        > 0
    )


@pytest.mark.parametrize(("rest_s", "is_known"), [(0.9e-6, False), (1e-6, True), (0.5, True)])
def test_what_took_no_time_says_nothing_of_tokens(rest_s: float, is_known: bool) -> None:
    pace = PrefillBudget()
    pace.observe_step(10, rest_s)
    assert (pace.max_prompt_tokens(0.1) is not None) == is_known


def test_without_a_step_that_only_decodes_all_time_is_the_prompts() -> None:
    pace = PrefillBudget()
    pace.observe_step(1000, 0.1)
    assert pace.max_prompt_tokens(0.05) == pytest.approx(500, abs=1)
