"""Baseline error counts over one hour, from cumulative counters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import NO_HISTORY, History
from penstock.core.rollout.baseline_errors import SAMPLE_INTERVAL_S, WINDOW_S, BaselineErrors

steps = st.lists(st.tuples(st.floats(1, 600), st.integers(0, 50), st.integers(0, 5)), min_size=1)


@given(steps)
def test_history_covers_the_last_hour(steps):
    baseline, now_s, total, recorded = BaselineErrors("a"), 0.0, Counts(), []
    for length_s, requests, errors in steps:
        now_s, total = now_s + length_s, total.add(Counts(requests + errors, errors))
        baseline = baseline.with_counts(now_s, total)
        recorded.append((now_s, total))
        began_s, began = baseline.samples[0]
        assert (began_s, began) in recorded
        assert now_s - began_s <= WINDOW_S
        assert baseline.history() == History(
            total.requests - began.requests, total.events - began.events
        )
        assert len(baseline.samples) <= WINDOW_S / SAMPLE_INTERVAL_S + 3


def test_a_counter_reset_clears_the_samples():
    baseline = BaselineErrors("a").with_counts(0.0, Counts(100, 10)).with_counts(60.0, Counts(5, 1))
    assert baseline.history() == NO_HISTORY
    assert baseline.with_counts(120.0, Counts(9, 2)).history() == History(4, 1)


def test_counts_within_a_gap_are_excluded():
    baseline = BaselineErrors("a").with_counts(0.0, Counts(0, 0)).with_counts(60.0, Counts(100, 1))
    baseline = baseline.without_gap(Counts(900, 500))
    assert baseline.with_counts(120.0, Counts(1000, 502)).history() == History(200, 3)


def samples(*each):
    """(time, requests, errors) of each stored sample."""
    return tuple((at_s, Counts(requests, events)) for at_s, requests, events in each)


THREE = BaselineErrors("a", samples((0, 10, 1), (60, 20, 3), (120, 30, 5)))


def test_samples_are_a_minute_apart_except_the_newest():
    baseline, left = BaselineErrors("a"), []
    for now_s in (0, 30, 59, 60, 90, 100, 125, 126):
        baseline = baseline.with_counts(now_s, Counts(now_s, 0))
        left.append([at_s for at_s, _ in baseline.samples])
    assert left == [
        [0], [0, 30], [0, 59], [0, 60], [0, 60, 90], [0, 60, 100], [0, 60, 125],
        [0, 60, 125, 126],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("now_s", "first_s"), [(WINDOW_S, 0), (WINDOW_S + 1, 60), (WINDOW_S + 121, WINDOW_S + 121)]
)
def test_samples_are_kept_for_an_hour(now_s, first_s):
    baseline = THREE.with_counts(now_s, Counts(40, 5))
    assert (baseline.samples[0][0], baseline.samples[-1]) == (first_s, (now_s, Counts(40, 5)))


@pytest.mark.parametrize(
    ("requests", "events", "is_anew"),
    [
        (30, 5, False), (40, 6, False), (29, 5, True), (30, 4, True), (40, 4, True), (25, 9, True),
    ],
)  # fmt: skip
def test_a_fall_of_either_count_is_a_reset(requests, events, is_anew):
    total = Counts(requests, events)
    after = THREE.with_counts(180, total)
    assert after.samples == (() if is_anew else THREE.samples) + ((180, total),)
    since = THREE.without_gap(total)
    gap = requests - 30, events - 5
    expected = BaselineErrors(
        "a", tuple((at_s, counts.add(Counts(*gap))) for at_s, counts in THREE.samples)
    )
    assert since == (BaselineErrors("a") if is_anew else expected)


def test_without_samples_there_is_no_history():
    assert BaselineErrors("a").history() is NO_HISTORY
    assert BaselineErrors("a").without_gap(Counts(5, 1)) == BaselineErrors("a")
    assert THREE.history() == History(20, 4)
