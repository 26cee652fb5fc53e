"""How fast an engine is, learned from its answers."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.pace import Pace
from penstock.core.step_times import NO_STEPS, StepTimes


def test_what_is_not_known_holds_nobody_back():
    assert not Pace().is_known
    assert Pace().prefill_tokens_per_s == math.inf
    assert Pace().decode_s(1000.0) == 0.0


def test_it_is_learned_from_few_answers():
    """20 ms an iteration and 10,000 tokens/s: short prompts say little about the speed."""
    draw, pace = random.Random(3), Pace()
    for _ in range(30):
        tokens = draw.choice([50, 200, 1000, 4000])
        pace = pace.after_first_token(tokens, 0.02 + tokens / 10_000)
        pace = pace.after_answer(100, 100 * 0.025 + 0.3, 0.3, 5000.0)
    assert pace.prefill_tokens_per_s == pytest.approx(8_700, rel=0.1)
    assert pace.decode_s(5000.0) == pytest.approx(0.025)


def test_it_follows_an_engine_that_slows_down():
    pace = Pace()
    for speed, step_s in [(10_000, 0.02)] * 200 + [(2_000, 0.05)] * 150:
        pace = pace.after_first_token(1000, 1000 / speed)
        pace = pace.after_answer(50, 50 * step_s, 0.0, 5000.0)
    assert pace.prefill_tokens_per_s == pytest.approx(2_000, rel=0.1)
    assert pace.decode_s(5000.0) == pytest.approx(0.05, rel=0.1)


def test_a_belief_is_soon_overruled():
    slow = Pace()
    for _ in range(500):
        slow = slow.after_first_token(1000, 1.0)
    belief = slow.faded()
    assert belief.prefill_tokens_per_s == pytest.approx(1_000)
    for _ in range(5):
        belief = belief.after_first_token(1000, 0.1)
    assert belief.prefill_tokens_per_s > 4_000


def test_time_that_cannot_be_is_none():
    pace = Pace().after_answer(10, 0.5, 2.0, 100.0).after_first_token(10, -1.0)
    assert (pace.decode_s(100.0), pace.prefill_tokens_per_s) == (0.0, math.inf)


def test_a_step_that_attends_to_more_takes_longer_than_any_seen():
    """11 ms and 0.12 us for each token, as an 8B model has it on an A100; seen at up to 60,000."""
    draw, pace = random.Random(1), Pace()
    for _ in range(200):
        kv = draw.uniform(10_000, 60_000)
        step_s = (0.011 + 1.2e-7 * kv) * draw.gauss(1, 0.05)
        pace = pace.after_answer(200, 200 * step_s, 0.0, kv)
    assert pace.decode_s(300_000) == pytest.approx(0.047, rel=0.15)


@pytest.mark.parametrize(
    ("seen", "kv_tokens", "expected_s"),
    [
        # Alike: no slope to be seen.
        ([(1000, 0.02), (1010, 0.04)], 100_000, 0.03),
        # Longer with fewer: not to be believed.
        ([(1000, 0.04), (3000, 0.02)], 100_000, 0.03),
        # Steeper than in proportion: from nothing it is in proportion.
        ([(1000, 0.01), (3000, 0.09)], 0, 0.0),
        ([(1000, 0.01), (3000, 0.09)], 4000, 0.1),
    ],
)
def test_lines_that_cannot_be(seen, kv_tokens, expected_s):
    times = NO_STEPS
    for kv, step_s in seen:
        times = times.after(10, kv, 10 * step_s)
    assert times.step_s(kv_tokens) == pytest.approx(expected_s)


@given(
    st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1e6), st.floats(0, 100)), max_size=8),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
)
def test_a_step_is_never_negative_and_grows_with_what_it_attends_to(seen, one, other):
    times = StepTimes()
    for steps, kv, took_s in seen:
        times = times.after(steps, kv, took_s)
    less, more = sorted((one, other))
    assert -1e-6 <= times.step_s(less) <= times.step_s(more) + 1e-9
