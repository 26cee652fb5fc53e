"""The choice of an engine by weighted scores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing import scorers
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.scorers import RequestAttributes, choose

A, B, C = (Endpoint(name, f"10.0.0.1:{n}", "r1") for n, name in enumerate("abc"))


def of_conversation(key):
    return RequestAttributes(user_key=None, conversation_key=key)


def cached_tokens(candidates):
    """A prefix cache: engine b holds 100 tokens of the conversation."""
    return [
        100 if (e.pod, candidates.request.conversation_key) == ("b", b"talk") else 0
        for e in candidates.engines
    ]


@given(
    st.lists(st.integers(0, 3) | st.floats(0, 1e12), min_size=1, max_size=9),
    st.floats(0, 1, exclude_max=True),
)
def test_without_further_scorers_one_of_the_least_loaded(tokens, draw):
    engines = [Endpoint(f"p{n}", f"10.0.0.1:{n}", "r1") for n in range(len(tokens))]
    least = [e for e, each in zip(engines, tokens, strict=True) if each == min(tokens)]
    assert choose(engines, tokens, draw, of_conversation(None)) == least[int(draw * len(least))]


@pytest.mark.parametrize(
    ("weight", "tokens", "key", "expected"),
    [
        (1.0, (0, 99, 0), b"talk", B),
        (1.0, (0, 101, 50), b"talk", A),
        (0.5, (0, 51, 50), b"talk", A),
        (2.0, (0, 199, 50), b"talk", B),
        (2.0, (1, 199, 0), b"other", C),
        (2.0, (1, 199, 0), None, C),
    ],
)
def test_scores_are_added_by_weight(monkeypatch, weight, tokens, key, expected):
    monkeypatch.setattr(scorers, "SCORERS", (*scorers.SCORERS, (weight, cached_tokens)))
    assert choose([A, B, C], tokens, 0.0, of_conversation(key)) == expected


@pytest.mark.parametrize(("draw", "expected"), [(0.0, A), (0.49, A), (0.5, B), (0.99, B)])
def test_the_draw_decides_between_equal_sums(monkeypatch, draw, expected):
    monkeypatch.setattr(scorers, "SCORERS", (*scorers.SCORERS, (1.0, cached_tokens)))
    assert choose([A, B, C], (0, 100, 1), draw, of_conversation(b"talk")) == expected
