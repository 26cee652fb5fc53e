"""Tables and properties of the choice of an engine."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing.pick import (
    Endpoint,
    NoEndpoint,
    Side,
    pick_side,
)

A, B, C = (Endpoint(name, f"10.0.0.1:{n}", "r1") for n, name in enumerate("abc"))
D = Endpoint("d", "10.0.0.2:1", "r2")
EVEN = {"r1": 50, "r2": 50}


def pick(*args, key=None, **more):
    """Any endpoint of the side."""
    choice = pick_side(*args, key=key, **more)
    return choice if isinstance(choice, NoEndpoint) else choice.any_endpoint


def by_side(weights):
    return {Side(revision): weight for revision, weight in weights.items()}


def choose(endpoints, weights=EVEN, draw=0.0, exclude=(), ejected=(), key=None):
    choice = pick(endpoints, by_side(weights), draw, exclude, ejected=ejected, key=key)
    return choice.pod if isinstance(choice, Endpoint) else choice


@pytest.mark.parametrize(
    ("weights", "draw", "expected"),
    [
        (EVEN, 0.0, "a"), (EVEN, 0.499, "a"), (EVEN, 0.5, "d"), (EVEN, 0.999, "d"),
        ({"r1": 99, "r2": 1}, 0.98, "a"), ({"r1": 99, "r2": 1}, 0.995, "d"),
        ({"r1": 0, "r2": 100}, 0.0, "d"), ({"r1": 100, "r2": 0}, 0.999, "a"),
        ({"r0": 90, "r1": 10}, 0.0, "a"),
    ],
)  # fmt: skip
def test_the_revision_by_weight(weights, draw, expected):
    assert choose([A, D], weights, draw) == expected


def test_nothing_ready_is_a_value():
    assert choose([]) == NoEndpoint("no engine is ready")


def test_nothing_with_traffic_is_a_value():
    assert choose([A], {}) == NoEndpoint("no revision receives traffic yet")
    assert choose([A], {"r2": 100}) == NoEndpoint("no engine is ready")


def test_all_tried_is_a_value_of_its_own():
    assert choose([A, D], exclude={"a", "d"}) == NoEndpoint(
        "every ready engine was tried", all_tried=True
    )


def test_ejected_engines_are_passed_over_but_never_all():
    assert choose([A, B], ejected={"a"}) == "b"
    assert choose([A, B], ejected={"a", "b"}) == "a"
    assert choose([A, B], exclude={"b"}, ejected={"a"}) == "a"


def test_a_revision_whose_engines_are_ejected_leaves_its_share():
    assert choose([A, D], {"r1": 99, "r2": 1}, 0.0, ejected={"a"}) == "d"


def test_the_split_is_the_weights():
    """20,000 draws at 70:30, within 4 standard deviations; and even within a revision."""
    draw = random.Random(7)
    counts = dict.fromkeys("abd", 0)
    for _ in range(20_000):
        counts[choose([A, B, D], {"r1": 70, "r2": 30}, draw.random())] += 1
    assert abs(counts["d"] - 6000) < 4 * math.sqrt(20_000 * 0.7 * 0.3)
    assert abs(counts["a"] - counts["b"]) < 4 * math.sqrt(14_000)


CONTROL = Endpoint("k", "10.0.0.3:1", "r1", "control")
SPLIT = {Side("r1"): 60, Side("r2"): 20, Side("r1", "control"): 20}


def side_of(weights, key, endpoints=(A, D, CONTROL)):
    choice = pick(endpoints, weights, 0.0, key=key)
    assert isinstance(choice, Endpoint)
    return choice.side


def test_a_cohort_has_a_share_of_its_own():
    draw = random.Random(5)
    counts = Counter(pick([A, B, D, CONTROL], SPLIT, draw.random()).side for _ in range(20_000))
    for side, weight in SPLIT.items():
        share = weight / 100
        assert abs(counts[side] - 20_000 * share) < 4 * math.sqrt(20_000 * share * (1 - share))


def test_kept_requests_are_split_as_drawn_ones():
    counts = Counter(side_of(SPLIT, b"conversation %d" % n) for n in range(20_000))
    for side, weight in SPLIT.items():
        share = weight / 100
        assert abs(counts[side] - 20_000 * share) < 4 * math.sqrt(20_000 * share * (1 - share))


@given(st.binary(), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_what_is_kept_does_not_ask_the_draw(key, one, other):
    first, second = (pick([A, D], by_side(EVEN), draw, key=key) for draw in (one, other))
    assert first == second


@given(st.binary(), st.integers(1, 49), st.integers(1, 49))
def test_a_canary_that_grows_only_draws_conversations_in(key, one, other):
    """When the weights of the canary and its control grow, conversations move to them only from stable."""
    small, large = sorted((one, other))
    before, after = (
        side_of({Side("r1"): 100 - 2 * w, Side("r2"): w, Side("r1", "control"): w}, key)
        for w in (small, large)
    )
    assert after == before or before == Side("r1")


@given(st.binary())
def test_who_loses_its_engines_gives_its_conversations_and_gets_them_back(key):
    home = side_of(SPLIT, key)
    others = [e for e in (A, D, CONTROL) if e.side != home]
    assert side_of(SPLIT, key, others) != home
    gone = next(e for e in others)
    assert side_of(SPLIT, key, [e for e in (A, D, CONTROL) if e != gone]) == home


pods = st.lists(
    st.builds(
        lambda n, r: Endpoint(f"p{n}", f"10.0.0.1:{n}", r),
        st.integers(0, 9),
        st.sampled_from(["r1", "r2", "r3"]),
    ),
    unique_by=lambda e: e.pod,
)
names = st.sets(st.sampled_from([f"p{n}" for n in range(10)]))


@given(
    pods,
    st.dictionaries(st.sampled_from(["r0", "r1", "r2", "r3"]), st.integers(0, 100)),
    st.floats(0, 1, exclude_max=True),
    names,
    names,
    st.none() | st.binary(max_size=8),
)
def test_a_pick_keeps_every_rule(endpoints, weights, draw, exclude, ejected, key):
    shares = by_side(weights)
    choice = pick(endpoints, shares, draw, exclude, ejected=ejected, key=key)

    open_to = [e for e in endpoints if weights.get(e.revision, 0) > 0 and e.pod not in exclude]
    if isinstance(choice, NoEndpoint):
        assert open_to == []
        return
    endpoint = choice
    assert endpoint in open_to
    if endpoint.pod in ejected:
        assert all(e.pod in ejected for e in open_to)
