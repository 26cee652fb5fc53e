"""Tests of derived properties of sampling parameters."""

import pytest

from penstock_engine.core.sampling import SamplingParams


@pytest.mark.parametrize(
    ("temperature", "is_greedy"), [(0.0, True), (0.99e-5, True), (1e-5, False), (1.0, False)]
)
def test_a_temperature_too_small_to_divide_by_is_greedy(
    temperature: float, is_greedy: bool
) -> None:
    assert SamplingParams(max_tokens=1, temperature=temperature).is_greedy is is_greedy


@pytest.mark.parametrize(
    ("changes", "has_penalties"),
    [
        ({}, False),
        ({"temperature": 0.5, "min_p": 0.1}, False),
        ({"presence_penalty": 0.1}, True),
        ({"frequency_penalty": -0.1}, True),
        ({"repetition_penalty": 1.1}, True),
        ({"repetition_penalty": 0.9}, True),
        ({"repetition_penalty": 2.0}, True),
        ({"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}, False),
    ],
)
def test_has_penalties_is_true_for_any_penalty(
    changes: dict[str, float], has_penalties: bool
) -> None:
    assert SamplingParams(max_tokens=1, **changes).has_penalties is has_penalties  # type: ignore[arg-type]


def test_defaults_have_no_effect() -> None:
    params = SamplingParams(max_tokens=1)
    assert not params.is_greedy
    assert (params.top_k, params.top_p, params.min_p, params.min_tokens) == (0, 1.0, 0.0, 0)
    assert params.logit_bias == {}
    assert params.allowed_token_ids is None
    assert params.logprobs is None
    assert params.prompt_logprobs is None
