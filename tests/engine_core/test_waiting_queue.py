"""Tests of the waiting queue: which sequence is admitted next, and which are deferred."""

import pytest

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.waiting_queue import WaitingQueue

MAX_WAIT_S = 2.0


def sequence(name: str, adapter: str = "", fork_of: str = "", arrival_s: float = 0.0) -> Sequence:
    sampling = SamplingParams(max_tokens=9)
    return Sequence(
        name, [1, 2], sampling, frozenset(), arrival_s, adapter=adapter, fork_of=fork_of
    )


def queue_of(*sequences: Sequence, max_adapters: int = 1) -> WaitingQueue:
    queue = WaitingQueue(max_adapters, MAX_WAIT_S)
    for number, one in enumerate(sequences):
        one.order = (0, number)
        queue.sequences.add(one)
    assert len(queue) == len(sequences)
    return queue


def next_of(
    queue: WaitingQueue, running: set[str], now: float = 0.0, *others: Sequence
) -> str | None:
    sequences = {one.request_id: one for one in [*queue.sequences, *others]}
    found = queue.select_next(sequences, running, now)
    return None if found is None else found.request_id


def test_the_first_of_the_queue_is_next() -> None:
    assert next_of(queue_of(), set()) is None
    assert next_of(queue_of(sequence("a"), sequence("b")), {"x"}) == "a"


@pytest.mark.parametrize(
    ("max_adapters", "running", "expected", "num_deferred"),
    [
        (1, set(), "y", 0),
        (1, {"x"}, "x", 1),
        (2, {"x"}, "y", 0),
        (2, {"x", "z"}, "x", 1),
        (1, {"z"}, "none", 2),
        (0, set(), "none", 2),
    ],
)
def test_sequences_overtake_one_whose_adapter_has_no_slot(
    max_adapters: int, running: set[str], expected: str, num_deferred: int
) -> None:
    waiting = [sequence("y", adapter="y"), sequence("x", adapter="x"), sequence("none")]
    queue = queue_of(*waiting, max_adapters=max_adapters)
    assert next_of(queue, running) == expected
    assert queue.num_deferred({}, running) == num_deferred


@pytest.mark.parametrize(
    ("now", "expected"), [(MAX_WAIT_S, "x"), (MAX_WAIT_S + 0.01, "none"), (99.0, "none")]
)
def test_sequences_with_adapters_do_not_overtake_after_the_maximum_wait(
    now: float, expected: str
) -> None:
    """After the wait, only sequences without an adapter overtake one that waits for its adapter."""
    waiting = [sequence("y", adapter="y"), sequence("x", adapter="x"), sequence("none")]
    assert next_of(queue_of(*waiting), {"x"}, now) == expected


def test_a_sequence_past_the_maximum_wait_blocks_later_adapters() -> None:
    """Sequences before it in the queue are admitted. A later deferred one does not reset the wait."""
    overdue, late = sequence("y", "y"), sequence("z", "z", arrival_s=9.0)
    behind = queue_of(overdue, late, sequence("x", "x"))
    assert next_of(behind, {"x"}, 9.0) is None
    before = queue_of(sequence("x", "x"), overdue, late)
    assert next_of(before, {"x"}, 9.0) == "x"
    behind_late = queue_of(late, sequence("x", "x"))
    assert [next_of(behind_late, {"x"}, now) for now in (9.0, 11.0, 11.1)] == ["x", "x", None]


@pytest.mark.parametrize(
    ("num_computed", "expected"), [(0, "other"), (1, "other"), (2, "fork"), (3, "fork")]
)
def test_a_fork_waits_for_the_prompt_of_its_parent(num_computed: int, expected: str) -> None:
    parent = sequence("parent")
    parent.tokens.append(3)
    parent.num_computed_tokens = num_computed
    queue = queue_of(sequence("fork", fork_of="parent"), sequence("other"))
    assert next_of(queue, set(), 0.0, parent) == expected
    assert queue.num_deferred({"parent": parent}, set()) == (expected == "other")


def test_a_fork_without_its_parent_does_not_wait() -> None:
    assert next_of(queue_of(sequence("fork", fork_of="gone")), set()) == "fork"


def test_a_sequence_that_waits_for_two_things_is_deferred_once() -> None:
    parent = sequence("parent")
    queue = queue_of(sequence("fork", adapter="y", fork_of="parent"))
    assert queue.num_deferred({"parent": parent}, {"x"}) == 1
