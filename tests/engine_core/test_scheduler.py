"""The scheduler: batching, preemption, the prefix cache, statistics and events."""

from collections.abc import Callable

import pytest
from tests.engine_core.small_scheduler import (
    advance,
    make_scheduler,
    make_sequence,
    ranges,
    step_of,
)

from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence, Status
from penstock_engine.core.step import SequenceOutput

Drain = Callable[[Scheduler], list[TokenEvent]]


def test_schedule_returns_none_without_work() -> None:
    assert make_scheduler().schedule(0.0) is None


def test_a_long_prompt_is_computed_in_chunks_and_samples_at_its_end() -> None:
    """The token budget of a step limits the chunk."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 20))
    first = step_of(scheduler)
    assert ranges(first) == {"a": (0, 16)}
    assert not first.sequences[0].is_sampled
    assert scheduler.complete(first, {}, 0.0) == []
    second = step_of(scheduler)
    assert ranges(second) == {"a": (16, 20)}
    assert second.sequences[0].is_sampled


def test_decodes_and_chunks_share_a_step() -> None:
    """Running sequences come first; the rest of the budget is for the next prompt."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 4, first=100))
    advance(scheduler)
    scheduler.add(make_sequence("b", 30))
    assert ranges(step_of(scheduler)) == {"a": (4, 5), "b": (0, 15)}


@pytest.mark.parametrize("kind", ["fcfs", "priority", "adapter"])
def test_no_stream_misses_a_step_while_a_long_prompt_is_computed(kind: str) -> None:
    """The prompt sorts after the streams, or before them by priority or adapter."""
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=4, max_num_batched_tokens=16, max_model_len=128, block_size=4,
            num_blocks=100, max_adapters=1, adapter_max_wait_s=99,
            policy="priority" if kind == "priority" else "fcfs",
        )
    )  # fmt: skip
    if kind == "adapter":
        scheduler.add(make_sequence("other", 4, max_tokens=3, first=50, adapter="y"))
        advance(scheduler)
    long = make_sequence(
        "long", 60, priority=-1 if kind == "priority" else 0,
        adapter="x" if kind == "adapter" else "",
    )  # fmt: skip
    streams = [make_sequence(name, 4, max_tokens=40, first=100) for name in ("a", "b")]
    for sequence in [long, *streams] if kind == "adapter" else streams:
        scheduler.add(sequence)
    for _ in range(2):
        advance(scheduler)
    if kind != "adapter":
        scheduler.add(long)
    steps = []
    while not long.num_output_tokens:
        step = step_of(scheduler)
        steps.append({s.request_id: s.num_tokens for s in step.sequences})
        scheduler.complete(step, {s.request_id: SequenceOutput((7,)) for s in step.sequences}, 0.0)
    assert (long.order < streams[0].order) == (kind != "fcfs")
    assert [step["long"] for step in steps] == [14, 14, 14, 14, 4]
    assert all(step["a"] == step["b"] == 1 for step in steps)


def test_an_urgent_prompt_takes_blocks_of_the_least_urgent_stream(drain: Drain) -> None:
    """Streams come first in a step, but preemption goes by priority."""
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=4, max_num_batched_tokens=8, max_model_len=40, block_size=4,
            num_blocks=11, policy="priority", prefix_caching=False,
        )
    )  # fmt: skip
    streams = {
        name: make_sequence(name, 3, max_tokens=20, first=50, priority=priority)
        for name, priority in (("patient", 2), ("normal", 1))
    }
    for sequence in streams.values():
        scheduler.add(sequence)
    advance(scheduler)
    urgent = make_sequence("urgent", 30, max_tokens=10)
    scheduler.add(urgent)
    while streams["patient"].status is Status.RUNNING:
        assert urgent.num_computed_tokens < 30 or urgent.num_output_tokens
        advance(scheduler)
    assert urgent.status is streams["normal"].status is Status.RUNNING
    finished = [e.request_id for e in drain(scheduler) if e.finish_reason]
    assert finished == ["urgent", "normal", "patient"]
    assert urgent.num_preemptions == 0


def test_a_head_that_does_not_fit_is_not_overtaken() -> None:
    """A short prompt does not overtake, because that would starve long ones."""
    scheduler = make_scheduler(num_blocks=8, max_model_len=32)
    scheduler.add(make_sequence("a", 8, max_tokens=20, first=100))
    advance(scheduler)
    scheduler.add(make_sequence("long", 28))
    scheduler.add(make_sequence("short", 1))
    assert ranges(step_of(scheduler)).keys() == {"a"}
    assert scheduler.stats().waiting == 2


def test_no_more_sequences_run_than_allowed() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    for name in "abc":
        scheduler.add(make_sequence(name, 2))
    assert ranges(step_of(scheduler)).keys() == {"a", "b"}


def test_the_last_running_sequence_is_preempted_and_recomputed(drain: Drain) -> None:
    """The preempted sequence keeps its tokens, loses its blocks, and is the next to be admitted."""
    scheduler = make_scheduler(num_blocks=4, max_model_len=16, prefix_caching=False)
    old, young = make_sequence("old", 8, 8, first=50), make_sequence("young", 7, 8)
    for sequence in (old, young):
        scheduler.add(sequence)
    advance(scheduler)
    scheduler.add(make_sequence("next", 1))
    step = step_of(scheduler)
    assert ranges(step) == {"old": (8, 9)}, "a step with a preemption admits no sequence"
    assert young.status is Status.WAITING
    assert (young.num_tokens, young.num_computed_tokens, young.block_table) == (8, 0, [])
    assert scheduler.stats().preemptions == 1
    scheduler.complete(step, {"old": SequenceOutput((7,))}, 0.0)
    events = drain(scheduler)
    finished = {e.request_id: e for e in events if e.finish_reason}
    assert finished.keys() == {"old", "young", "next"}
    assert finished["young"].preemptions >= 1
    assert finished["young"].num_output_tokens == 8


def test_a_preempted_sequence_is_admitted_first_but_not_at_once() -> None:
    """Two equal prompts run; the second could share the blocks of the first immediately.

    It waits for one step, because a step with a preemption is short of blocks. Then it is admitted
    before sequences that arrived later.
    """
    scheduler = make_scheduler(num_blocks=4, max_model_len=16)
    for name in ("elder", "twin"):
        scheduler.add(make_sequence(name, 8))
    advance(scheduler)
    scheduler.add(make_sequence("next", 1, first=50))
    step = step_of(scheduler)
    assert ranges(step) == {"elder": (8, 9)}
    scheduler.complete(step, {"elder": SequenceOutput((7,))}, 0.0)
    assert ranges(step_of(scheduler)) == {"elder": (9, 10), "twin": (8, 9)}


def test_a_repeated_prompt_is_read_from_the_cache() -> None:
    """At least the last token is computed, because its logits are needed."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 12, max_tokens=1))
    advance(scheduler)
    scheduler.add(make_sequence("b", 12, max_tokens=1))
    assert ranges(step_of(scheduler)) == {"b": (8, 12)}
    stats = scheduler.stats()
    assert (stats.prefix_queries_tokens, stats.prefix_hits_tokens) == (24, 8)


def test_generated_tokens_are_found_by_the_next_turn() -> None:
    """The next prompt of a conversation contains the last answer."""
    scheduler = make_scheduler()
    first = make_sequence("a", 6, max_tokens=7)
    scheduler.add(first)
    while scheduler.has_work:
        advance(scheduler)
    turn = Sequence("b", [*first.tokens, 5], first.sampling, frozenset(), 0.0)
    scheduler.add(turn)
    assert ranges(step_of(scheduler)) == {"b": (12, 14)}


def test_salts_keep_prefixes_apart() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 12, max_tokens=1))
    advance(scheduler)
    sampling = SamplingParams(max_tokens=1)
    scheduler.add(Sequence("b", list(range(12)), sampling, frozenset(), 0.0, cache_salt="other"))
    assert ranges(step_of(scheduler)) == {"b": (0, 12)}


def test_a_hit_is_counted_once_however_long_it_waits() -> None:
    """Counting every attempt would multiply the hits of a full engine."""
    scheduler = make_scheduler(num_blocks=6, max_model_len=24)
    scheduler.add(make_sequence("a", 12, max_tokens=8))
    advance(scheduler)
    scheduler.add(make_sequence("b", 24 - 1, max_tokens=1))
    for _ in range(5):
        advance(scheduler)
    assert scheduler.stats().prefix_queries_tokens == 12


def test_pending_prompt_tokens_decrease_during_prefill() -> None:
    """The autoscaler reads this number of accepted prompt tokens that are not computed yet."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 20))
    scheduler.add(make_sequence("b", 10, first=50))
    pending = [scheduler.stats().prefill_tokens_pending]
    for _ in range(2):
        advance(scheduler)
        pending.append(scheduler.stats().prefill_tokens_pending)
    assert pending == [30, 14, 0]


def test_events_have_the_times_and_counts_of_the_metrics() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence("warm", 8, max_tokens=1))
    advance(scheduler)
    scheduler.add(make_sequence("a", 10, max_tokens=2))
    [first] = advance(scheduler, now_s=3.0)
    [second] = advance(scheduler, now_s=4.0)
    assert (first.scheduled_s, first.first_token_s, first.now_s) == (3.0, 3.0, 3.0)
    assert (second.queued_s, second.first_token_s, second.now_s) == (0.0, 3.0, 4.0)
    assert (second.num_cached_tokens, second.prefill_kv_computed_tokens) == (8, 2)
    stats = scheduler.stats()
    assert (stats.prompt_tokens_computed, stats.prompt_tokens_cached) == (8 + 2, 8)
    assert stats.generation_tokens == 3


def test_an_empty_prompt_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least one prompt token"):
        make_sequence("a", 0)


@pytest.mark.parametrize(
    "changes", [{"max_num_seqs": 0}, {"max_num_batched_tokens": 0}, {"max_model_len": 1}]
)
def test_limits_that_allow_nothing_are_rejected(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"at least|room"):
        make_scheduler(**changes)
