"""Delays before replicas are added or removed."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scaling.delays import MAX_GAP_S, ScaleDownDelay, ScaleDownWindow, ScaleUpDelay
from penstock.core.scaling.rule import TrailEntry


def low_until(last_s: int, step_s: int = 2) -> ScaleDownDelay:
    """Fewer replicas are enough from 0 s until last_s."""
    delay = ScaleDownDelay()
    for now_s in range(0, last_s + 1, step_s):
        delay = delay.updated(float(now_s), is_low=True)
    return delay


def test_a_scale_down_waits_for_the_whole_delay() -> None:
    assert low_until(58).entry(3, 2, 60.0) == TrailEntry(
        "delay", 3, "3 are held: fewer are enough for 58 of 60 s"
    )
    assert low_until(60).entry(3, 2, 60.0) == TrailEntry(
        "down", 2, "fewer than 3 were enough for 60 s"
    )


@pytest.mark.parametrize("delay_s", [0.0, 60.0])
def test_a_delay_is_not_over_while_fewer_are_not_enough(delay_s: float) -> None:
    delay = low_until(100).updated(102.0, is_low=False)
    assert (delay.lasted_s, delay.is_over(delay_s)) == (0.0, False)
    assert delay.updated(104.0, is_low=True).is_over(delay_s) == (delay_s == 0.0)


@pytest.mark.parametrize(("gap_s", "is_over"), [(MAX_GAP_S, True), (MAX_GAP_S + 1, False)])
def test_a_gap_between_decisions_starts_the_delay_again(gap_s: float, *, is_over: bool) -> None:
    delay = low_until(50).updated(50 + gap_s, is_low=True)
    assert delay.is_over(60.0) == is_over


def test_a_scale_up_adds_the_least_that_was_needed_over_the_delay() -> None:
    delay, steps = ScaleUpDelay(), []
    for now_s, wanted in ((0.0, 9), (4.0, 5), (8.0, 7), (12.0, 8)):
        delay, step = delay.delay(wanted, 3, now_s, 12.0)
        steps.append((step.step, step.replicas))
    assert steps == [("delay", 3), ("delay", 3), ("delay", 3), ("up", 5)]
    assert step.note == "at least 5 were needed for 12 s"
    assert delay == ScaleUpDelay()


def test_a_scale_up_without_a_delay_is_at_once() -> None:
    assert ScaleUpDelay().delay(4, 3, 0.0, 0.0)[1].replicas == 4


def decided(
    needs: list[tuple[float, int]], current: int, delay_s: float
) -> Iterator[tuple[float, TrailEntry]]:
    """Steps of a service that has as many replicas as its last step says. needs: by the time before each."""
    window, now_s = ScaleDownWindow(), 0.0
    for gap_s, need in needs:
        now_s += gap_s
        window = window.updated(now_s, need, delay_s)
        current = max(current, need)  # a scale-up is at once
        step = window.entry(current, int(window.largest), now_s, delay_s)
        current = step.replicas
        yield now_s, step


def test_fewer_replicas_are_held_until_the_window_is_over() -> None:
    needs = [(2.0, 4)] * 3 + [(2.0, 2)] * 31
    steps = [step for _, step in decided(needs, 4, 60.0)]
    assert {step.step for step in steps[:32]} == {"steady"}
    assert steps[32] == TrailEntry("down", 2, "2 have been enough for 60 s")
    assert steps[33] == TrailEntry("steady", 2, "needed within 60 s: 2")


def test_new_window_holds_what_there_is_for_the_delay() -> None:
    """A new operator does not know what was needed before it."""
    steps = [step for _, step in decided([(2.0, 1)] * 32, 5, 60.0)]
    assert steps[0] == TrailEntry("delay", 5, "5 are held: fewer are enough for 0 of 60 s")
    assert {step.replicas for step in steps[:30]} == {5}
    assert steps[30].replicas == 1


def test_window_goes_down_to_the_largest_need_and_not_to_the_last() -> None:
    needs = [(2.0, 1)] * 20 + [(2.0, 3)] + [(2.0, 1)] * 30
    steps = [step.replicas for _, step in decided(needs, 5, 60.0)]
    assert steps[:30] == [5] * 30
    assert steps[30:50] == [3] * 20
    assert steps[50] == 1


@pytest.mark.parametrize("delay_s", [0.0, 1.0])
def test_window_without_a_delay_follows_the_need(delay_s: float) -> None:
    steps = [step.replicas for _, step in decided([(2.0, n) for n in (4, 2, 3, 0)], 4, delay_s)]
    assert steps == [4, 2, 3, 0]


@pytest.mark.parametrize(("gap_s", "replicas"), [(MAX_GAP_S, 1), (MAX_GAP_S + 1, 5)])
def test_gap_between_decisions_starts_the_window_again(gap_s: float, replicas: int) -> None:
    """The needs within a gap between decisions are unknown."""
    steps = [step for _, step in decided([*[(2.0, 1)] * 26, (gap_s, 1)], 5, 60.0)]
    assert steps[-1].replicas == replicas


@given(
    needs=st.lists(
        st.tuples(st.floats(0.5, 0.99 * MAX_GAP_S), st.integers(0, 9)), min_size=1, max_size=60
    ),
    delay_s=st.floats(0.0, 200.0),
)
def test_window_never_removes_what_was_needed_within_the_delay(
    needs: list[tuple[float, int]], delay_s: float
) -> None:
    """The largest need by hand, over the whole delay; before that has passed, nothing is removed."""
    steps = list(decided(needs, 5, delay_s))
    before = 5
    for i, (now_s, step) in enumerate(steps):
        recent = [
            need
            for (at_s, _), (_, need) in zip(steps, needs, strict=True)
            if now_s - delay_s < at_s <= now_s
        ]
        largest = max([needs[i][1], *recent])
        is_whole = now_s - steps[0][0] >= delay_s
        current = max(before, needs[i][1])
        assert step.replicas == (min(current, largest) if is_whole else current)
        before = step.replicas


@given(needs=st.lists(st.integers(0, 9), min_size=1, max_size=200))
def test_window_keeps_no_more_needs_than_there_are_numbers(needs: list[int]) -> None:
    window = ScaleDownWindow()
    for n, need in enumerate(needs):
        window = window.updated(2.0 * n, need, 1e6)
    kept = [need for _, need in window.needs]
    assert kept == sorted(set(kept), reverse=True)
    assert kept[0] == max(needs)
