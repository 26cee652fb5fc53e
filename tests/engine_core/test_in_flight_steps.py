"""Tests of steps in flight: their durations, their sequences and their blocks."""

import pytest

from penstock_engine.core.in_flight_steps import InFlightSteps
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import ScheduledSequence, Step

SAMPLING = SamplingParams(max_tokens=9)


def sequence(name: str, blocks: list[int]) -> Sequence:
    one = Sequence(name, [1, 2], SAMPLING, frozenset(), 0.0)
    one.block_table = blocks
    return one


def step_of(*sequences: Sequence) -> Step:
    return Step(
        tuple(
            ScheduledSequence(
                s.request_id, 0, (1, 2), tuple(s.block_table), True, s.sampling, s.tokens, 2
            )
            for s in sequences
        )
    )


@pytest.mark.parametrize(
    ("opened_s", "closed_s", "durations_s"),
    [
        ((0.5, 4.0), (3.0, 6.0), [2.5, 2.0]),  # no overlap
        ((1.0, 2.0), (3.0, 6.0), [2.0, 3.0]),  # overlap: the second starts when the first ends
        ((1.0, 1.0), (3.0, 3.0), [2.0, 0.0]),
    ],
)
def test_durations_do_not_overlap(
    opened_s: tuple[float, float], closed_s: tuple[float, float], durations_s: list[float]
) -> None:
    steps, two = InFlightSteps({}), [step_of(), step_of(sequence("a", [0]))]
    events = sorted(
        [(t, 0, i) for i, t in enumerate(opened_s)] + [(t, 1, i) for i, t in enumerate(closed_s)]
    )
    found = []
    for now, is_close, index in events:
        if is_close:
            found.append(steps.complete(two[index], now))
        else:
            steps.add(two[index], now)
    assert found == durations_s


def test_steps_complete_in_the_order_of_scheduling() -> None:
    steps = InFlightSteps({})
    first, second = step_of(), step_of(sequence("a", [0]))
    steps.add(first, 0.0)
    steps.add(second, 0.0)
    with pytest.raises(AssertionError, match="in the order"):
        steps.complete(second, 1.0)


def test_sequences_in_flight_are_those_that_are_alive() -> None:
    """An ended sequence is not included, and neither is a later one with the same id."""
    a, b, other_b = sequence("a", [0]), sequence("b", [1]), sequence("b", [2])
    alive = {"a": a, "b": b}
    steps = InFlightSteps(alive)
    assert steps.sequences_in_flight() == {}
    step = step_of(a, b)
    steps.add(step, 0.0)
    assert steps.sequences_in_flight() == dict(zip("ab", step.sequences, strict=True))
    alive["b"] = other_b
    assert steps.sequences_in_flight().keys() == {"a"}
    del alive["a"]
    assert [steps.is_alive(s) for s in step.sequences] == [False, False]
    assert steps.sequences_in_flight() == {}


@pytest.mark.parametrize(
    ("blocks", "is_right"), [([4, 5], True), ([4, 5, 6], True), ([4], False), ([5, 4], False)]
)
def test_check_finds_blocks_that_changed_in_flight(blocks: list[int], is_right: bool) -> None:
    one, ended = sequence("a", [4, 5]), sequence("ended", [1])
    steps = InFlightSteps({"a": one})
    steps.add(step_of(ended, one), 0.0)
    one.block_table = blocks
    if is_right:
        steps.check()
    else:
        with pytest.raises(AssertionError, match="changed in flight"):
            steps.check()
