"""Prompt tokens from bytes of text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing.token_estimate import (
    MAX_TENANTS,
    MAX_WEIGHT,
    MIN_TEXT_BYTES,
    TokenEstimate,
    TokenEstimates,
)


def test_it_starts_at_four_bytes_a_token():
    assert TokenEstimate().of(4000) == 1000
    assert TokenEstimate().of(0) == 1


def test_it_learns_a_ratio_and_follows_another():
    estimate = TokenEstimate()
    for ratio in (1, 2, 8):
        for _ in range(1000):
            estimate = estimate.observe(ratio * 600, 600)
        assert estimate.of(ratio * 600) == pytest.approx(600, rel=0.05)


@pytest.mark.parametrize(
    ("text_bytes", "tokens", "expected"),
    [
        (4_000, 1_000, TokenEstimate(100_500.0, 402_000.0)),  # at its full weight
        (512, 1, TokenEstimate(99_501.0, 398_512.0)),
        (40_000, 1_000, TokenEstimate(100_000.0, 418_000.0)),  # half of it: the text is too long
        (
            10_000,
            10_000,
            TokenEstimate(104_500.0, 403_000.0),
        ),  # half of it: the tokens are too many
        (4_000, 4_001, TokenEstimate(103_500.0, 402_000.0)),  # more than its bytes
    ],
)
def test_what_one_answer_adds(text_bytes, tokens, expected):
    after = TokenEstimate(100_000.0, 400_000.0).observe(text_bytes, tokens)
    assert after.tokens == pytest.approx(expected.tokens)
    assert after.text_bytes == pytest.approx(expected.text_bytes)


positive = st.integers(1, 1 << 40)


@given(positive, positive, st.integers(0, 300))
def test_one_answer_moves_it_little_whatever_it_says(text_bytes, tokens, before):
    estimate = TokenEstimate()
    for _ in range(before):
        estimate = estimate.observe(4000, 900)
    after = estimate.observe(text_bytes, tokens)
    moved = after.tokens / after.text_bytes / (estimate.tokens / estimate.text_bytes)
    bound = 1 + MAX_WEIGHT / 0.995
    assert 1 / bound - 1e-9 <= moved <= bound + 1e-9


@pytest.mark.parametrize(("text_bytes", "tokens"), [(0, 9), (9, 0), (0, 0), (600, 0), (511, 128)])
def test_an_answer_that_says_nothing_teaches_nothing(text_bytes, tokens):
    assert TokenEstimate().observe(text_bytes, tokens) == TokenEstimate()


def test_the_template_of_tiny_prompts_is_no_ratio():
    """Prompts of one word, for which a template adds 30 tokens, change nothing for a long one."""
    estimate = TokenEstimate()
    for _ in range(50):
        for _ in range(20):
            estimate = estimate.observe(2, 30)
        estimate = estimate.observe(4000, 1000)
    assert estimate.of(20_000) == pytest.approx(5_000, rel=0.01)


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 20)), max_size=300))
def test_a_byte_never_counts_for_more_than_a_token(answers):
    estimate = TokenEstimate()
    for text_bytes, tokens in answers:
        estimate = estimate.observe(text_bytes, tokens)
    assert estimate.of(20_000) <= 20_000


def test_the_template_is_at_most_a_quarter_of_the_shortest_prompt_that_counts():
    estimate = TokenEstimate()
    for _ in range(2000):
        estimate = estimate.observe(MIN_TEXT_BYTES, MIN_TEXT_BYTES // 4 + 30)
    assert estimate.of(20_000) <= 1.25 * 5_000


def test_answers_to_a_tenant_change_no_estimate_of_others():
    estimates = TokenEstimates()
    estimates.observe("own", 4000, 1000)
    for _ in range(2000):
        estimates.observe("hostile", 4000, 4000)
    assert estimates.get("own") == TokenEstimate().observe(4000, 1000)
    assert estimates.get("hostile").of(20_000) == pytest.approx(20_000, rel=0.01)


def test_a_tenant_without_an_answer_has_the_mean_of_the_ratios_of_others():
    estimates = TokenEstimates()
    assert estimates.get("new") == TokenEstimate()
    for _ in range(2000):
        estimates.observe("a", 4000, 1000)
    for _ in range(2000):
        estimates.observe("b", 4000, 2000)
    mean = estimates.get("new")
    assert mean.text_bytes == TokenEstimate().text_bytes
    assert mean.of(8000) == pytest.approx(3000, rel=0.01)
    estimates.observe("new", 300, 300)  # a text that is too short
    assert estimates.get("new") == mean
    estimates.observe("new", 4000, 1500)
    assert estimates.get("new") == mean.observe(4000, 1500)


def test_the_tenant_that_had_no_answer_for_the_longest_time_is_forgotten():
    estimates = TokenEstimates()
    for number in range(MAX_TENANTS):
        estimates.observe(str(number), 4000, 4000)
    estimates.observe("0", 4000, 4000)
    before = estimates.get("0")
    estimates.observe("one more", 4000, 1000)
    assert estimates.get("0") == before
    assert estimates.get("1") == estimates.get("never seen") != before
