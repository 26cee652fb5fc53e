"""Deadlines of a rollout, and when it is next due."""

import pytest
from core_rollout.rollout_inputs import (
    BACK,
    JUDGED,
    KEPT,
    OLD,
    PROMOTING,
    SETTLED,
    SINCE_S,
    inputs,
    pod,
    state,
)

from penstock.core.formats.timestamps import timestamp
from penstock.core.rollout.events import deadline_s
from penstock.core.rollout.wake import earlier_s, wake_s


def test_each_pod_that_becomes_ready_moves_the_deadline():
    def at(*after_s):
        return [pod(name=f"{s}", ready_at=timestamp(SINCE_S + s)) for s in after_s]

    starting = state("Starting")
    assert deadline_s(starting, inputs(pod(ready=False))) == SINCE_S + 600
    assert deadline_s(starting, inputs(*at(-50))) == SINCE_S + 600
    assert deadline_s(starting, inputs(*at(50, 90, 70))) == SINCE_S + 690
    assert deadline_s(starting, inputs(pod(OLD, ready_at=timestamp(SINCE_S + 99)))) == SINCE_S + 600


@pytest.mark.parametrize(
    ("of", "after_s", "left_s"),
    [
        (PROMOTING, 0, 1),
        (PROMOTING, 70, 1),
        (BACK, 5, 1),
        (KEPT, 10, 290),
        (KEPT, 299.5, 1),
        (state("Starting"), 10, 590),
        (state("Starting"), 599, 1),
        (state("Starting"), 600, None),
        (state("Growing"), 0, 600),
        (state("Replacing"), 0, 600),
        (JUDGED, 0, None),
        (SETTLED, 0, None),
        (state("Waiting"), 0, None),
    ],
)
def test_when_time_itself_makes_something_happen(of, after_s, left_s):
    assert wake_s(of, inputs(after_s=after_s)) == left_s


def test_the_earlier_of_two_times_is_the_one_there_is():
    assert (earlier_s(1, 2), earlier_s(3, 2)) == (1, 2)
    assert (earlier_s(None, 2), earlier_s(1, None), earlier_s(None, None)) == (2, 1, None)
    assert (earlier_s(0, None), earlier_s(0, 1)) == (0, 0)
