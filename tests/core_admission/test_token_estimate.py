"""Prompt tokens from bytes of text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.token_estimate import MAX_WEIGHT, TokenEstimate


def test_it_starts_at_four_bytes_a_token():
    assert TokenEstimate().of(4000) == 1000
    assert TokenEstimate().of(0) == 1


def test_it_learns_a_ratio_and_follows_another():
    estimate = TokenEstimate()
    for ratio in (2, 8):
        for _ in range(1000):
            estimate = estimate.observe(ratio * 500, 500)
        assert estimate.of(ratio * 500) == pytest.approx(500, rel=0.05)


@pytest.mark.parametrize(
    ("text_bytes", "tokens", "expected"),
    [
        (40, 10, TokenEstimate(1005.0, 4020.0)),  # at its full weight
        (1, 1, TokenEstimate(996.0, 3981.0)),
        (400, 10, TokenEstimate(1000.0, 4180.0)),  # half of it: the text is too long
        (40, 100, TokenEstimate(1045.0, 4000.0)),  # half of it: the tokens are too many
    ],
)
def test_what_one_answer_adds(text_bytes, tokens, expected):
    after = TokenEstimate(1000.0, 4000.0).observe(text_bytes, tokens)
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


@pytest.mark.parametrize(("text_bytes", "tokens"), [(0, 9), (9, 0), (0, 0)])
def test_an_answer_that_says_nothing_teaches_nothing(text_bytes, tokens):
    assert TokenEstimate().observe(text_bytes, tokens) == TokenEstimate()
