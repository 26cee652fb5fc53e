"""Stabilization windows and policies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sim.baselines.hpa.behavior import (
    DEFAULT,
    Behavior,
    Direction,
    Policy,
    Stamped,
    limited,
    stabilized,
)

NOW = 1000.0
UP_30_DOWN_180 = Behavior(
    Direction((Policy("Pods", 4, 60), Policy("Percent", 100, 60)), window_s=30),
    Direction((Policy("Pods", 1, 120),), window_s=180),
)


@pytest.mark.parametrize(
    ("current", "wanted", "past", "replicas"),
    [
        (3, 8, [(990, 3)], 3),  # a recommendation of 3 from 10 s ago holds
        (3, 8, [(970, 3)], 8),  # 30 s ago no longer counts
        (3, 8, [(980, 5), (990, 6)], 5),  # as far as the lowest
        (8, 3, [(830, 6)], 6),  # 170 s ago 6 were needed
        (8, 3, [(820, 6)], 3),
        (8, 3, [(900, 9)], 8),  # more were needed, but that is no reason to grow
        (5, 5, [(990, 2), (995, 9)], 5),
        # The window up holds even against a count below: the lowest is 2, the highest 8.
        (3, 8, [(990, 2)], 3),
    ],
)
def test_stabilized(current, wanted, past, replicas):
    stamped = tuple(Stamped(*p) for p in past)
    assert stabilized(UP_30_DOWN_180, current, wanted, stamped, NOW) == replicas


@pytest.mark.parametrize(
    ("behavior", "current", "wanted", "changes", "replicas"),
    [
        # The defaults of Kubernetes: the larger of 4 more and twice as many, in 15 s.
        (DEFAULT, 1, 50, [], 5),
        (DEFAULT, 10, 50, [], 20),
        (DEFAULT, 5, 50, [(990, 4)], 5),  # 1 + 4 at the period's start
        (DEFAULT, 5, 50, [(985, 4)], 10),  # 15 s ago: a new period
        (DEFAULT, 10, 1, [], 1),  # 100 %
        # down by 1 in 120 s
        (UP_30_DOWN_180, 8, 3, [], 7),
        (UP_30_DOWN_180, 7, 3, [(900, -1)], 7),
        (UP_30_DOWN_180, 7, 3, [(880, -1)], 6),
        # +1 and -1: the start of the period is the current count.
        (UP_30_DOWN_180, 8, 3, [(950, 1), (960, -1)], 7),
        (UP_30_DOWN_180, 8, 20, [(950, 4)], 8),  # 4 + max(4, 4)
    ],
)
def test_limited(behavior, current, wanted, changes, replicas):
    stamped = tuple(Stamped(*c) for c in changes)
    assert limited(behavior, current, wanted, stamped, NOW) == replicas


def test_the_policy_that_allows_most_is_selected():
    """Policies of 4 replicas and 10 % (11 up), of 1 replica and 50 % (5 down)."""
    behavior = Behavior(
        Direction((Policy("Pods", 4, 60), Policy("Percent", 10, 60)), 0),
        Direction((Policy("Pods", 1, 60), Policy("Percent", 50, 60)), 0),
    )
    assert limited(behavior, 10, 100, (), NOW) == 14
    assert limited(behavior, 10, 0, (), NOW) == 5


def test_percents_round_away_from_standing_still_up_and_down_to_it():
    fifth = Behavior(
        Direction((Policy("Percent", 20, 60),), 0), Direction((Policy("Percent", 20, 60),), 0)
    )
    assert limited(fifth, 3, 9, (), NOW) == 4  # 3.6
    assert limited(fifth, 3, 0, (), NOW) == 2  # 2.4


replicas = st.integers(0, 50)
history = st.lists(st.tuples(st.floats(0, 1000), replicas), max_size=8)


@given(replicas, replicas, history)
def test_limits_neither_overshoot_nor_reverse(current, wanted, past):
    stamped = tuple(Stamped(*p) for p in past)
    calm = stabilized(UP_30_DOWN_180, current, wanted, stamped, NOW)
    slow = limited(UP_30_DOWN_180, current, calm, (), NOW)
    low, high = sorted((current, wanted))
    assert low <= slow <= calm <= high or low <= calm <= slow <= high
