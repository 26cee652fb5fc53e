"""What stable did in the last hour, from counts that only grow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import NO_HISTORY, History
from penstock.core.rollout.past import LENGTH_S, MARK_S, Past

steps = st.lists(st.tuples(st.floats(1, 600), st.integers(0, 50), st.integers(0, 5)), min_size=1)


@given(steps)
def test_it_is_what_came_within_the_hour(steps):
    past, now_s, total, all_of_it = Past("a"), 0.0, Counts(), []
    for length_s, requests, errors in steps:
        now_s, total = now_s + length_s, total.add(Counts(requests + errors, errors))
        past = past.after(now_s, total)
        all_of_it.append((now_s, total))
        began_s, began = past.marks[0]
        assert (began_s, began) in all_of_it
        assert now_s - began_s <= LENGTH_S
        assert past.history() == History(
            total.requests - began.requests, total.events - began.events
        )
        assert len(past.marks) <= LENGTH_S / MARK_S + 3


def test_counts_that_fell_begin_anew():
    past = Past("a").after(0.0, Counts(100, 10)).after(60.0, Counts(5, 1))
    assert past.history() == NO_HISTORY
    assert past.after(120.0, Counts(9, 2)).history() == History(4, 1)


def test_what_came_in_a_gap_is_nobodys():
    past = Past("a").after(0.0, Counts(0, 0)).after(60.0, Counts(100, 1))
    past = past.without_what_came_since(Counts(900, 500))
    assert past.after(120.0, Counts(1000, 502)).history() == History(200, 3)


def marks(*each):
    """(time, requests, events) of each."""
    return tuple((at_s, Counts(requests, events)) for at_s, requests, events in each)


THREE = Past("a", marks((0, 10, 1), (60, 20, 3), (120, 30, 5)))


def test_a_mark_is_left_at_most_once_a_minute_and_the_last_is_now():
    past, left = Past("a"), []
    for now_s in (0, 30, 59, 60, 90, 100, 125, 126):
        past = past.after(now_s, Counts(now_s, 0))
        left.append([at_s for at_s, _ in past.marks])
    assert left == [
        [0], [0, 30], [0, 59], [0, 60], [0, 60, 90], [0, 60, 100], [0, 60, 125],
        [0, 60, 125, 126],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("now_s", "first_s"), [(LENGTH_S, 0), (LENGTH_S + 1, 60), (LENGTH_S + 121, LENGTH_S + 121)]
)
def test_a_mark_is_kept_for_an_hour(now_s, first_s):
    past = THREE.after(now_s, Counts(40, 5))
    assert (past.marks[0][0], past.marks[-1]) == (first_s, (now_s, Counts(40, 5)))


@pytest.mark.parametrize(
    ("requests", "events", "is_anew"),
    [
        (30, 5, False), (40, 6, False), (29, 5, True), (30, 4, True), (40, 4, True), (25, 9, True),
    ],
)  # fmt: skip
def test_either_count_that_fell_begins_anew(requests, events, is_anew):
    total = Counts(requests, events)
    after = THREE.after(180, total)
    assert after.marks == (() if is_anew else THREE.marks) + ((180, total),)
    since = THREE.without_what_came_since(total)
    gap = requests - 30, events - 5
    expected = Past("a", tuple((at_s, counts.add(Counts(*gap))) for at_s, counts in THREE.marks))
    assert since == (Past("a") if is_anew else expected)


def test_of_nothing_there_is_no_history_and_no_gap():
    assert Past("a").history() is NO_HISTORY
    assert Past("a").without_what_came_since(Counts(5, 1)) == Past("a")
    assert THREE.history() == History(20, 4)
