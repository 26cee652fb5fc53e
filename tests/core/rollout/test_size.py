"""Arithmetic of rollouts: pods and shares of traffic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.rollout.size import ReplicaCounts, next_replicas, pods_for, resolve_limits
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import split

NUMBERS = st.integers(0, 40)


@pytest.mark.parametrize(
    ("weight", "total", "pods"),
    [(0.05, 1, 1), (0.05, 20, 1), (0.05, 21, 2), (0.3, 10, 3), (0.5, 7, 4), (0.1, 0, 1)],
)
def test_a_side_gets_its_share_of_the_pods_rounded_up(weight, total, pods):
    assert pods_for(weight, total) == pods


@given(st.integers(1, 100), st.dictionaries(st.sampled_from("abcde").map(Side), NUMBERS))
def test_traffic_is_split_in_proportion_and_nothing_is_lost(whole, by):
    if not any(by.values()):
        with pytest.raises(ValueError, match="no side"):
            split(whole, by)
        return
    shares = split(whole, by)
    assert sum(share.percent for share in shares) == whole
    assert all(by[share.side] > 0 < share.percent for share in shares)
    total = sum(by.values())
    for share in shares:
        assert abs(share.percent - whole * by[share.side] / total) <= 1 + len(by)


@st.composite
def replacing(draw):
    new, old = draw(NUMBERS), draw(NUMBERS)
    surge, unavailable = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    return (
        draw(st.integers(0, 30)),
        ReplicaCounts(new, draw(st.integers(0, new))),
        ReplicaCounts(old, draw(st.integers(0, old))),
        {"surge": surge, "unavailable": unavailable or (not surge)},
        draw(st.booleans()),
    )


@given(replacing())
def test_replacing_takes_no_pod_that_is_needed_and_makes_none_that_is_not(case):
    total, new, old, limits, lacks_room = case
    wanted_new, wanted_old = next_replicas(total, new, old, **limits, lacks_room=lacks_room)
    assert 0 <= wanted_old <= old.replicas
    assert min(new.replicas, total) <= wanted_new <= total
    if wanted_new > new.replicas:
        assert wanted_new + old.replicas <= total + limits["surge"]
    # A Deployment removes pods that are not ready first.
    ready_removed = max(0, (old.replicas - wanted_old) - (old.replicas - old.ready))
    if ready_removed:
        left = new.ready + old.ready - ready_removed
        assert left >= total - limits["unavailable"]


@pytest.mark.parametrize(
    ("surge", "unavailable", "total", "expected"),
    [
        (1, 0, 4, (1, 0)),
        ("25%", "25%", 10, (3, 2)),  # up, and down
        ("25%", "25%", 4, (1, 1)),
        ("1%", 0, 1, (1, 0)),
        (0, "25%", 3, (0, 1)),  # nothing would move
        ("0%", "100%", 3, (0, 3)),
        ("200%", 5, 3, (6, 5)),
        ("25%", "25%", 0, (0, 1)),
    ],
)
def test_percentages_are_rounded_as_in_a_deployment(surge, unavailable, total, expected):
    assert resolve_limits(surge, unavailable, total) == expected
