"""The time that an engine has for prompts while others decode on it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.engine_load import LEAST_SHARE, SAVED_S, EngineLoad, Place, Waiting
from penstock.core.pace import Pace
from penstock.core.step_times import StepTimes

# 1,000 prompt tokens a second; a step takes 40 ms.
PACE = Pace(1000.0, 1.0, StepTimes(100.0, 0.0, 4.0))


def engine(**more):
    return EngineLoad(pod="p", kv_capacity_tokens=10_000, pace=PACE, **more)


def waiting(tokens=1000.0, name="w"):
    return Waiting(name, 0.0, 1.0, tokens, tokens)


def test_a_request_adds_what_it_is_until_it_is_over():
    load = engine()
    place = Place(load, waiting(300), 0.0)
    assert (load.prefill_tokens, load.kv_tokens, load.decoding) == (300, 300, 0)
    assert place.expected_s == pytest.approx(0.3)
    place.began(0.5)
    assert (load.prefill_tokens, load.kv_tokens, load.decoding) == (0, 300, 1)
    place.left()
    place.left()
    assert (load.prefill_tokens, load.kv_tokens, load.decoding) == (0, 0, 0)


def test_prompts_leave_those_that_decode_the_time_of_their_objective():
    """Steps of 40 ms of 80 ms, which is four fifths of 100, leave prompts half of the time."""
    load = engine()
    Place(load, waiting(1), 0.0).began(0.001)
    load.look(0.001, 0.1)
    sent_tokens = 0
    for tick in range(1, 60_001):
        load.look(tick / 1000, 0.1)
        if not load.delay_s:
            place = Place(load, waiting(200), tick / 1000)
            place.computed()
            place.left()
            sent_tokens += 200
    share = load._share
    assert share == pytest.approx(0.5, abs=0.01)
    assert sent_tokens == pytest.approx(60 * 1000 * share, abs=1000 * SAVED_S + 200)


@pytest.mark.parametrize(
    ("decoding", "tpot_s", "is_held"),
    [(True, 0.1, True), (True, 0.04, True), (True, None, False), (False, 0.1, False)],
)
def test_who_decodes_and_minds(decoding, tpot_s, is_held):
    load = engine()
    if decoding:
        Place(load, waiting(1), 0.0).computed()
    load.look(0.0, tpot_s)
    Place(load, waiting(5000), 0.0)
    assert (load.delay_s > 0) == is_held


def test_steps_that_are_too_slow_anyway_leave_a_little():
    load = engine()
    Place(load, waiting(1), 0.0).computed()
    load.look(0.0, 0.001)
    Place(load, waiting(1000), 0.0)
    assert load.delay_s == pytest.approx(1 / LEAST_SHARE, rel=0.01)
    assert load.ttft_s(0) == pytest.approx(load.delay_s + 1)


def test_what_is_not_known_holds_nothing():
    load = EngineLoad(pod="p", kv_capacity_tokens=10_000)
    for name in "abc":
        Place(load, waiting(5000, name), 0.0).computed()
        load.look(1.0, 0.1)
    assert (load.delay_s, load.ttft_s(10_000)) == (0, 0)


steps = st.lists(st.tuples(st.sampled_from(["send", "begin", "leave", "look"]), st.integers(0, 5)))


@given(steps)
def test_the_load_is_that_of_the_places(steps):
    load, places, now = engine(), {}, 0.0
    for number, (step, which) in enumerate(steps):
        now += 0.1
        if step == "send" and which not in places:
            tokens = 10.0 * (number + 1)
            places[which] = [Place(load, waiting(tokens, str(which)), now), tokens, False]
        elif step == "begin" and which in places and not places[which][2]:
            places[which][0].began(now)
            places[which][2] = True
        elif step == "leave" and which in places:
            places.pop(which)[0].left()
        elif step == "look":
            load.look(now, 0.1)
        assert load.prefill_tokens == sum(
            tokens for _, tokens, begun in places.values() if not begun
        )
        assert load.kv_tokens == sum(tokens for _, tokens, _ in places.values())
        assert load.decoding == sum(begun for _, _, begun in places.values())
        assert load.credit_s <= SAVED_S
