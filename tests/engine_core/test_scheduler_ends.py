"""How sequences end in the scheduler: by token, length, rejection, abort and failure."""

from collections.abc import Callable

import pytest
from tests.engine_core.small_scheduler import EOS, advance, make_scheduler, make_sequence, step_of

from penstock_engine.core.events import TokenEvent
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.step import SequenceOutput

Drain = Callable[[Scheduler], list[TokenEvent]]


@pytest.mark.parametrize(
    ("sampling", "tokens", "reason", "num_output_tokens"),
    [
        ({}, [1, EOS, 1], "stop", 2),
        ({"ignore_eos": True}, [1, EOS, 1, 1], "length", 4),
        ({"stop_token_ids": frozenset({5})}, [1, 5], "stop", 2),
        ({"min_tokens": 2}, [EOS, EOS, EOS], "stop", 3),
        ({"min_tokens": 4}, [EOS] * 4, "length", 4),
    ],
    ids=["eos", "ignored-eos", "stop-token", "min-tokens", "min-is-max"],
)
def test_a_sequence_ends_by_token_or_length(
    sampling: dict[str, object], tokens: list[int], reason: str, num_output_tokens: int
) -> None:
    """The token that ends it is part of the output. No token ends it before min_tokens."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 3, **sampling))
    events: list[TokenEvent] = []
    for token in tokens:
        if scheduler.has_work:
            events += advance(scheduler, token)
    assert [e.finish_reason for e in events[:-1]] == [None] * (len(events) - 1)
    assert (events[-1].finish_reason, events[-1].num_output_tokens) == (reason, num_output_tokens)
    assert not scheduler.has_work


def test_a_step_has_the_ending_tokens_of_each_sequence() -> None:
    """The sampler excludes them before min_tokens, so that the distribution is right."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 3, min_tokens=1, stop_token_ids=frozenset({5})))
    scheduler.add(make_sequence("b", 3, ignore_eos=True, stop_token_ids=frozenset({6})))
    first, second = step_of(scheduler).sequences
    assert first.ending_token_ids == {5, EOS}
    assert second.ending_token_ids == {6}


def test_a_sequence_that_outgrows_model_or_pool_ends_by_length(drain: Drain) -> None:
    """Reaching the model's context or the pool's size is no deadlock."""
    for limits in ({"max_model_len": 12}, {"num_blocks": 3}):
        scheduler = make_scheduler(**limits)
        scheduler.add(make_sequence("a", 5, max_tokens=1000))
        assert [e.finish_reason for e in drain(scheduler)][-1] == "length"


@pytest.mark.parametrize("limits", [{"max_model_len": 12}, {"num_blocks": 3}])
def test_a_prompt_that_can_never_fit_is_rejected(limits: dict[str, int]) -> None:
    scheduler = make_scheduler(**limits)
    event = scheduler.add(make_sequence("a", 12))
    assert event is not None
    assert (event.finish_reason, event.failure) == ("error", "prompt_too_long")
    assert not scheduler.has_work
    assert scheduler.add(make_sequence("b", 11)) is None


def test_the_queue_has_a_maximum_length() -> None:
    scheduler = make_scheduler(max_num_seqs=1, max_num_queued_seqs=2)
    scheduler.add(make_sequence("runs", 1))
    advance(scheduler)
    assert scheduler.add(make_sequence("a", 1)) is None
    assert scheduler.add(make_sequence("b", 1)) is None
    event = scheduler.add(make_sequence("c", 1))
    assert event is not None
    assert event.failure == "queue_full"


def test_free_slots_count_as_room_in_the_queue() -> None:
    """All choices of a request are accepted if they fit into slots and queue together."""
    scheduler = make_scheduler(max_num_seqs=3, max_num_queued_seqs=1)
    rejected = [scheduler.add(make_sequence(name, 1)) is not None for name in "abcde"]
    assert rejected == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("limits", "num_prompt_tokens", "rejections"),
    [
        ({"num_blocks": 3}, 12, 1),
        ({"max_model_len": 12}, 12, 0),
        ({"max_num_queued_seqs": 1}, 1, 0),
    ],
    ids=["larger-than-the-pool", "larger-than-the-model", "queue-full"],
)
def test_only_prompts_larger_than_the_pool_count_as_rejections(
    limits: dict[str, int], num_prompt_tokens: int, rejections: int
) -> None:
    scheduler = make_scheduler(max_num_seqs=1, **limits)
    events = [scheduler.add(make_sequence(name, num_prompt_tokens)) for name in "abc"]
    assert events[-1] is not None
    assert scheduler.stats().rejections == rejections * 3


def test_a_request_id_in_use_is_rejected() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 1))
    with pytest.raises(ValueError, match="in use"):
        scheduler.add(make_sequence("a", 1))


@pytest.mark.parametrize("num_steps", [0, 1, 3], ids=["waiting", "mid-prefill", "mid-decode"])
def test_abort_frees_everything(num_steps: int) -> None:
    """Abort works in each phase, and has no effect a second time."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 20, max_tokens=8))
    for _ in range(num_steps):
        advance(scheduler)
    event = scheduler.abort("a", 5.0)
    assert event is not None
    assert event.finish_reason == "abort"
    scheduler.check()
    assert (scheduler.stats().kv_usage, scheduler.stats().prefill_tokens_pending) == (0.0, 0)
    assert scheduler.abort("a", 6.0) is None


def test_results_of_a_sequence_aborted_during_a_step_are_ignored() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 4))
    step = step_of(scheduler)
    scheduler.abort("a", 0.0)
    assert scheduler.complete(step, {"a": SequenceOutput((7,))}, 0.0) == []
    scheduler.check()


def test_failed_sequences_do_not_affect_others() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 4))
    scheduler.add(make_sequence("b", 4, first=50))
    step = step_of(scheduler)
    [event] = scheduler.fail(["a"], "step_failed", 1.0)
    assert (event.request_id, event.finish_reason, event.failure) == ("a", "error", "step_failed")
    [other] = scheduler.complete(step, {"b": SequenceOutput((7,))}, 1.0)
    assert (other.request_id, other.token_ids) == ("b", (7,))
    scheduler.check()


@pytest.mark.parametrize(
    ("sampled", "failure"),
    [(SequenceOutput(), "nothing_to_draw"), (SequenceOutput(is_corrupt=True), "nan_output")],
)
def test_a_sequence_without_a_sampled_token_fails_with_a_reason(
    sampled: SequenceOutput, failure: str
) -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 4))
    [event] = scheduler.complete(step_of(scheduler), {"a": sampled}, 1.0)
    assert (event.finish_reason, event.failure) == ("error", failure)
    scheduler.check()


def test_blocks_of_a_failed_step_are_never_shared() -> None:
    """Blocks are published only when their step has succeeded."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 12))
    step_of(scheduler)
    scheduler.fail(["a"], "step_failed", 0.0)
    scheduler.add(make_sequence("b", 12))
    [chunk] = step_of(scheduler).sequences
    assert (chunk.request_id, chunk.start, chunk.end) == ("b", 0, 12)
