"""Fields that limits of a route set in requests."""

from math import inf, nan

import pytest

from penstock.core.routing.apis import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from penstock.core.routing.sampling_limits import SamplingLimits

LIMITS = SamplingLimits(output_tokens=100, choices=2, temperature=1.0, top_logprobs=5)


@pytest.mark.parametrize(
    ("api", "stated", "expected"),
    [
        (CHAT, {"max_tokens": 100, "n": 2, "temperature": 1.0, "top_logprobs": 5}, {}),
        (CHAT, {"max_tokens": 101}, {"max_tokens": 100}),
        (CHAT, {"max_tokens": 7, "max_completion_tokens": 101}, {"max_completion_tokens": 100}),
        (CHAT, {"max_tokens": -1}, {"max_tokens": 100}),
        (CHAT, {"max_tokens": 5000, "min_tokens": 200}, {"max_tokens": 100, "min_tokens": 100}),
        (CHAT, {}, {"max_completion_tokens": 100}),
        (COMPLETIONS, {}, {"max_tokens": 16}),
        (COMPLETIONS, {"max_tokens": 1, "logprobs": -1}, {"logprobs": 5}),
        (COMPLETIONS, {"max_tokens": 1, "best_of": 3}, {"best_of": 2}),
        (CHAT, {"max_tokens": 1, "logprobs": inf}, {}),  # a switch there
        (CHAT, {"max_tokens": 1, "prompt_logprobs": 6}, {"prompt_logprobs": 5}),
        (RESPONSES, {"max_output_tokens": 200}, {"max_output_tokens": 100}),
        (CHAT, {"max_tokens": 1, "temperature": inf}, {"temperature": 1.0}),
        (CHAT, {"max_tokens": 1, "temperature": nan}, {"temperature": 1.0}),
        (CHAT, {"max_tokens": 1, "n": 3}, {"n": 2}),
        (EMBEDDINGS, {}, {}),
    ],
)
def test_fields_beyond_the_limits_are_set_to_them(api, stated, expected):
    assert LIMITS.fields_to_set(api, stated) == expected


def test_without_a_limit_nothing_is_set():
    stated = {"n": 9, "temperature": 2.0, "max_tokens": 10**9, "top_logprobs": 20}
    assert SamplingLimits().fields_to_set(CHAT, stated) == {}
