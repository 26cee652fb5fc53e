"""How fast an engine is, learned from its answers."""

import math
import random

import pytest

from penstock.core.admission.prefill_throughput import PrefillThroughput


def test_what_is_not_known_holds_nobody_back():
    assert not PrefillThroughput().is_known
    assert PrefillThroughput().prefill_tokens_per_s == math.inf


def test_it_is_learned_from_few_answers():
    """20 ms an iteration and 10,000 tokens/s: short prompts say little about the speed."""
    draw, throughput = random.Random(3), PrefillThroughput()
    for _ in range(30):
        tokens = draw.choice([50, 200, 1000, 4000])
        throughput = throughput.after_first_token(tokens, 0.02 + tokens / 10_000)
    assert throughput.prefill_tokens_per_s == pytest.approx(8_700, rel=0.1)


def test_it_follows_an_engine_that_slows_down():
    throughput = PrefillThroughput()
    for speed in [10_000] * 200 + [2_000] * 150:
        throughput = throughput.after_first_token(1000, 1000 / speed)
    assert throughput.prefill_tokens_per_s == pytest.approx(2_000, rel=0.1)


def test_a_belief_is_soon_overruled():
    slow = PrefillThroughput()
    for _ in range(500):
        slow = slow.after_first_token(1000, 1.0)
    belief = slow.as_prior()
    assert belief.prefill_tokens_per_s == pytest.approx(1_000)
    for _ in range(5):
        belief = belief.after_first_token(1000, 0.1)
    assert belief.prefill_tokens_per_s > 4_000


def test_time_that_cannot_be_is_none():
    assert PrefillThroughput().after_first_token(10, -1.0).prefill_tokens_per_s == math.inf


def test_an_answer_without_tokens_says_nothing():
    for before in (PrefillThroughput(), PrefillThroughput(100.0, 1.0)):
        assert before.after_first_token(0.0, 0.1) == before


@pytest.mark.parametrize(("tokens", "took_s"), [(1e9, 1e-3), (1.0, 1e6), (1e9, 1e6), (1.0, 1e-9)])
def test_one_answer_moves_a_pace_little_whatever_it_says(tokens, took_s):
    throughput = PrefillThroughput()
    for _ in range(200):
        throughput = throughput.after_first_token(1000, 0.1)
    after = throughput.after_first_token(tokens, took_s)
    moved = after.prefill_tokens_per_s / throughput.prefill_tokens_per_s
    assert 1 / 1.17 < moved < 1.17


def test_a_long_prompt_counts_at_its_rate_where_its_weight_is_bounded():
    throughput = PrefillThroughput()
    for _ in range(200):
        throughput = throughput.after_first_token(1000, 0.1)
    after = throughput.after_first_token(1e6, 100.0)
    assert after.prefill_tokens_per_s == pytest.approx(10_000)
