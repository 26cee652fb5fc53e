"""Tests of steps that are scheduled ahead, while the step before is still computed."""

import pytest
from tests.engine_core.small_scheduler import EOS, make_scheduler, make_sequence, step_of

from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.step import PENDING_TOKEN, SequenceOutput, Step


def complete(scheduler: Scheduler, step: Step, token: int = 7) -> list[str]:
    """Completes a step with one token for each sequence. Returns the ids of the events."""
    events = scheduler.complete(
        step, {s.request_id: SequenceOutput((token,)) for s in step.sequences if s.is_sampled}, 0.0
    )
    scheduler.check()
    return [event.request_id for event in events]


def parts(step: Step) -> dict[str, tuple[int, tuple[int, ...]]]:
    return {s.request_id: (s.start, s.token_ids) for s in step.sequences}


def test_a_step_ahead_schedules_a_token_that_is_not_sampled_yet() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 4, max_tokens=8))
    first = step_of(scheduler)
    second = step_of(scheduler)
    assert parts(second) == {"a": (4, PENDING_TOKEN)}
    assert second.sequences[0].is_sampled
    assert len(second.sequences[0].block_table) == 2
    assert complete(scheduler, first) == ["a"]
    assert second.sequences[0].with_sampled_token().token_ids == (7,)
    assert parts(step_of(scheduler)) == {"a": (5, PENDING_TOKEN)}
    assert complete(scheduler, second, 8) == ["a"]


def test_a_step_ahead_continues_a_chunked_prompt() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 20, max_tokens=8))
    first, second = step_of(scheduler), step_of(scheduler)
    assert parts(second) == {"a": (16, (16, 17, 18, 19))}
    assert complete(scheduler, first) == []
    assert complete(scheduler, second) == ["a"]


@pytest.mark.parametrize(
    ("max_tokens", "max_model_len"), [(1, 64), (9, 5)], ids=["max_tokens", "max_model_len"]
)
def test_no_step_ahead_exceeds_a_known_length_limit(max_tokens: int, max_model_len: int) -> None:
    scheduler = make_scheduler(max_model_len=max_model_len)
    scheduler.add(make_sequence("a", 4, max_tokens))
    first = step_of(scheduler)
    assert scheduler.schedule(0.0) is None
    assert complete(scheduler, first) == ["a"]
    assert not scheduler.has_work


def test_results_after_an_end_are_discarded() -> None:
    """The end-of-sequence token frees the blocks, and the step ahead gives no event."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 4, max_tokens=8))
    scheduler.add(make_sequence("b", 5, max_tokens=8))
    first, second = step_of(scheduler), step_of(scheduler)
    complete(scheduler, first, EOS)
    assert not scheduler.has_work
    assert scheduler.num_free_blocks == 16
    assert complete(scheduler, second) == []


def test_a_new_sequence_of_the_same_id_does_not_get_an_old_token() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 4, max_tokens=8))
    first, second = step_of(scheduler), step_of(scheduler)
    scheduler.abort("a", 0.0)
    scheduler.add(make_sequence("a", 6, max_tokens=8))
    assert complete(scheduler, first) == []
    third = step_of(scheduler)
    assert parts(third) == {"a": (0, (0, 1, 2, 3, 4, 5))}
    assert complete(scheduler, second) == []
    assert complete(scheduler, third) == ["a"]


def test_a_step_ahead_preempts_no_sequence() -> None:
    """The step in flight may free the blocks that the step ahead lacks."""
    scheduler = make_scheduler(num_blocks=3, max_model_len=12)
    scheduler.add(make_sequence("a", 4, max_tokens=8))
    scheduler.add(make_sequence("b", 7, max_tokens=8))
    first = step_of(scheduler)
    assert scheduler.schedule(0.0) is None
    complete(scheduler, first)
    assert set(parts(step_of(scheduler))) == {"a"}
    assert scheduler.stats().preemptions == 1


def test_drafts_wait_for_the_step_before() -> None:
    speculation = SpeculationConfig(method="ngram", num_speculative_tokens=2, prompt_lookup_min=1)
    scheduler = make_scheduler(speculation=speculation)
    scheduler.add(make_sequence("a", 4, max_tokens=8))
    first = step_of(scheduler)
    assert scheduler.schedule(0.0) is None, "the next step may have drafts"
    complete(scheduler, first, 2)
    drafting = step_of(scheduler)
    assert drafting.sequences[0].drafts == (3, 2)
    assert scheduler.schedule(0.0) is None, "the number of accepted drafts is not known"
