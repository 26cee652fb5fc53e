"""When a rollout is next due."""

import pytest
from tests.core.rollout.rollout_inputs import (
    BACK,
    JUDGED,
    KEPT,
    PROMOTING,
    SETTLED,
    inputs,
    state,
)

from penstock.core.rollout.wake import earlier_s, wake_s


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
