"""Load of an engine as the gateway predicts it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engine_models import model_of

from penstock.core.admission.engine_kind import EngineKind
from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.core.admission.placement import Placement
from penstock.core.routing.request_attributes import RequestAttributes

# 1,000 prompt tokens a second.
MODEL = model_of(1000.0)
ATTRIBUTES = RequestAttributes(user_key=None, conversation_key=None)


def engine(**more):
    return EngineLoad(pod="p", kv_capacity_tokens=10_000, kind=EngineKind(MODEL), **more)


def waiting(tokens=1000.0, name="w"):
    return Waiting(name, 0.0, 1.0, tokens, tokens, ATTRIBUTES)


def place(load, waiting, now):
    return Placement(load, waiting, waiting.prompt_tokens, now)


def test_a_request_adds_what_it_is_until_it_is_over():
    load = engine()
    placement = place(load, waiting(300), 0.0)
    assert (load.prefill_tokens, load.kv_tokens) == (300, 300)
    assert placement.expected_s == pytest.approx(0.3)
    placement.first_token(0.5)
    assert (load.prefill_tokens, load.kv_tokens) == (0, 300)
    placement.release(1.0)
    placement.release(1.0)
    assert (load.prefill_tokens, load.kv_tokens) == (0, 0)


def test_what_ends_twice_frees_nothing_of_others():
    """A client that leaves while its answer ends."""
    load = engine()
    first, second = place(load, waiting(300, "a"), 0.0), place(load, waiting(500, "b"), 0.0)
    for _ in range(2):
        first.computed(1.0)
        assert (load.prefill_tokens, load.kv_tokens) == (500, 800)
    for _ in range(2):
        first.release(1.0)
        assert (load.prefill_tokens, load.kv_tokens) == (500, 500)
    first.computed(1.0)
    assert load.prefill_tokens == 500
    second.release(1.0)
    assert (load.prefill_tokens, load.kv_tokens) == (0, 0)


def test_what_is_not_known_holds_nothing():
    load = EngineLoad(pod="p", kv_capacity_tokens=10_000)
    for name in "abc":
        place(load, waiting(5000, name), 0.0)
    assert load.ttft_s(10_000, 0.0) == 0


steps = st.lists(st.tuples(st.sampled_from(["send", "begin", "leave"]), st.integers(0, 5)))


@given(steps)
def test_the_load_is_that_of_the_places(steps):
    load, placements, now = engine(), {}, 0.0
    for number, (step, which) in enumerate(steps):
        now += 0.1
        if step == "send" and which not in placements:
            tokens = 10.0 * (number + 1)
            placements[which] = [place(load, waiting(tokens, str(which)), now), tokens, False]
        elif step == "begin" and which in placements and not placements[which][2]:
            placements[which][0].first_token(now)
            placements[which][2] = True
        elif step == "leave" and which in placements:
            placements.pop(which)[0].release(now)
        assert load.prefill_tokens == sum(
            tokens for _, tokens, begun in placements.values() if not begun
        )
        assert load.kv_tokens == sum(tokens for _, tokens, _ in placements.values())


def test_a_model_without_a_time_of_tokens_says_nothing():
    load = EngineLoad(pod="p", kv_capacity_tokens=10_000, kind=EngineKind(model_of(math.inf)))
    assert load.token_s == 0
    assert load.prefill_tokens_per_s == math.inf
