"""What stable did in the last hour, from counts that only grow."""

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
