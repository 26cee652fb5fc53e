"""Delays before replicas are added or removed."""

import pytest

from penstock.core.scaling.delays import MAX_GAP_S, ScaleDownDelay, ScaleUpDelay
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
