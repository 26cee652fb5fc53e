"""Tests of the scheduler's events and statistics: exact values."""

import pytest
from tests.engine_core.small_scheduler import ranges, step_of

from penstock_engine.core.prefill_budget import PrefillBudget
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence, Status
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.core.step import SequenceOutput, Step, TokenLogprobs

EOS = 99
LOGPROBS = tuple(TokenLogprobs(token, -1.0, 1, ()) for token in (5, 6, 7))


def make_scheduler(prefill_budget: PrefillBudget | None = None, **changes: object) -> Scheduler:
    values = {
        "max_num_seqs": 4, "max_num_batched_tokens": 16, "max_model_len": 32, "block_size": 4,
        "num_blocks": 10,
    }  # fmt: skip
    return Scheduler(SchedulerConfig(**(values | changes)), prefill_budget=prefill_budget)  # type: ignore[arg-type]


def sequence(
    name: str, prompt: list[int], max_tokens: int = 9, *, adapter: str = "", fork_of: str = "",
    priority: int = 0, arrival_s: float = 0.5, tpot_s: float | None = None,
    prompt_logprobs: int | None = None,
) -> Sequence:  # fmt: skip
    sampling = SamplingParams(max_tokens=max_tokens, prompt_logprobs=prompt_logprobs)
    return Sequence(
        name, prompt, sampling, frozenset({EOS}), arrival_s, adapter=adapter, fork_of=fork_of,
        priority=priority, tpot_s=tpot_s,
    )  # fmt: skip


def advance(scheduler: Scheduler, now_s: float = 0.0, token: int = 7) -> Step:
    step = step_of(scheduler, now_s)
    scheduler.complete(
        step, {s.request_id: SequenceOutput((token,)) for s in step.sequences}, now_s
    )
    scheduler.check()
    return step


def test_statistics_of_running_and_waiting_sequences() -> None:
    """Adapters x and y run. y and z wait: one for a slot, one for its adapter."""
    scheduler = make_scheduler(max_num_seqs=3, max_adapters=2, num_host_blocks=3)
    assert not scheduler.has_work
    for name, adapter in (("1", ""), ("2", "y"), ("3", "x"), ("4", "z"), ("5", "y"), ("6", "")):
        assert scheduler.add(sequence(name, [1] * 5, adapter=adapter)) is None
    assert scheduler.has_work
    assert scheduler.stats().waiting == 6
    advance(scheduler, 1.0)
    step = step_of(scheduler, 2.0)
    scheduler.complete(step, {s.request_id: SequenceOutput((7,)) for s in step.sequences}, 2.5)
    assert scheduler.stats() == SchedulerStats(
        running=3, waiting=3, deferred=1, running_adapters=("x", "y"), waiting_adapters=("y", "z"),
        kv_usage=0.6, prefill_tokens_pending=15, prefix_queries_tokens=15, prefix_hits_tokens=0,
        preemptions=0, prompt_tokens_computed=15, prompt_tokens_cached=0, prompt_tokens_from_host=0,
        generation_tokens=6, drafts=0, draft_tokens=0, accepted_by_position=(),
        waits_for_blocks=0, rejections=0, busy_s=0.5, evicted_blocks=0, saved_blocks=0,
        copy_choices=(),
    )  # fmt: skip
    assert scheduler.num_free_blocks == 4


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_model_len", "failure", "rejections"),
    [
        (39, 64, None, 0), (40, 64, "prompt_too_long", 1), (63, 64, "prompt_too_long", 1),
        (64, 64, "prompt_too_long", 0), (99, 64, "prompt_too_long", 0),
        (31, 32, None, 0), (32, 32, "prompt_too_long", 0),
    ],
)  # fmt: skip
def test_a_prompt_leaves_room_for_a_token(
    num_prompt_tokens: int, max_model_len: int, failure: str | None, rejections: int
) -> None:
    """A prompt counts as a rejection only if it exceeds the pool of 40 tokens."""
    scheduler = make_scheduler(max_model_len=max_model_len)
    one = sequence("a", [1] * num_prompt_tokens)
    event = scheduler.add(one)
    assert scheduler.stats().rejections == rejections
    if failure is None:
        assert event is None
        assert (one.status, one.order) == (Status.WAITING, (0, 0))
        return
    assert event is not None
    assert (event.finish_reason, event.failure, event.now_s) == ("error", failure, 0.5)
    assert one.status is Status.FINISHED
    assert not scheduler.has_work


@pytest.mark.parametrize(
    ("policy", "orders"), [("fcfs", [(0, 0), (0, 1)]), ("priority", [(3, 0), (-1, 1)])]
)
def test_priorities_need_the_priority_policy(policy: str, orders: list[tuple[int, int]]) -> None:
    scheduler = make_scheduler(policy=policy)
    first, second = sequence("a", [1], priority=3), sequence("b", [2], priority=-1)
    scheduler.add(first)
    scheduler.add(second)
    assert [first.order, second.order] == orders


def test_an_adapter_needs_max_adapters() -> None:
    with pytest.raises(ValueError, match="max_adapters is 0"):
        make_scheduler().add(sequence("a", [1], adapter="x"))
    assert make_scheduler(max_adapters=1).add(sequence("a", [1], adapter="x")) is None


def test_an_event_has_the_tokens_within_the_limit() -> None:
    """A step gives three tokens, of which max_tokens allows two. The first event has the embedding."""
    scheduler = make_scheduler()
    scheduler.add(sequence("a", [1, 2, 3], max_tokens=3, prompt_logprobs=0))
    first = SequenceOutput(
        (4,), logprobs=LOGPROBS[:1], prompt_logprobs=LOGPROBS[1:], embedding=(0.5, 0.25)
    )
    [event] = scheduler.complete(step_of(scheduler, 1.0), {"a": first}, 2.0)
    assert (event.token_ids, event.logprobs, event.prompt_logprobs) == (
        (4,),
        LOGPROBS[:1],
        LOGPROBS[1:],
    )
    assert (event.embedding, event.finish_reason) == ((0.5, 0.25), None)
    assert (event.queued_s, event.scheduled_s, event.first_token_s) == (0.5, 1.0, 2.0)
    step = step_of(scheduler, 3.0)
    [event] = scheduler.complete(step, {"a": SequenceOutput((5, 6, 7), 2, logprobs=LOGPROBS)}, 4.0)
    assert (event.token_ids, event.logprobs, event.prompt_logprobs) == ((5, 6), LOGPROBS[:2], ())
    assert (event.embedding, event.finish_reason, event.failure) == ((), "length", None)
    assert (event.first_token_s, event.now_s, event.ending_token_id) == (2.0, 4.0, None)
    assert (event.num_prompt_tokens, event.num_output_tokens) == (3, 3)
    stats = scheduler.stats()
    assert (stats.generation_tokens, stats.drafts, stats.draft_tokens) == (3, 1, 2)
    assert stats.accepted_by_position == (1, 1)
    assert scheduler.num_free_blocks == 10


def test_an_event_has_its_ending_token() -> None:
    scheduler = make_scheduler()
    scheduler.add(sequence("a", [1, 2, 3]))
    [event] = scheduler.complete(step_of(scheduler), {"a": SequenceOutput((EOS,))}, 2.0)
    assert (event.token_ids, event.finish_reason, event.ending_token_id) == ((EOS,), "stop", EOS)


def test_blocks_of_a_corrupt_sequence_are_not_read_again() -> None:
    """All blocks of a sequence with NaN logits are removed, even those that others published."""
    for sampled, start in ((SequenceOutput(is_corrupt=True), 0), (SequenceOutput(), 8)):
        scheduler = make_scheduler()
        scheduler.add(sequence("a", [1] * 10, max_tokens=1))
        advance(scheduler)
        scheduler.add(sequence("b", [1] * 10))
        step = step_of(scheduler)
        assert ranges(step) == {"b": (8, 10)}
        scheduler.complete(step, {"b": sampled}, 0.0)
        scheduler.add(sequence("c", [1] * 10))
        assert ranges(step_of(scheduler)) == {"c": (start, 10)}


def test_a_prompt_is_computed_again_after_a_reset() -> None:
    scheduler = make_scheduler()
    for name in "ab":
        scheduler.add(sequence(name, [1] * 10, max_tokens=1))
        scheduler.reset_prefix_cache()
        assert ranges(advance(scheduler)) == {name: (0, 10)}


def test_cache_queries_are_counted_only_with_prefix_caching() -> None:
    for prefix_caching, counted in ((True, (20, 8)), (False, (0, 0))):
        scheduler = make_scheduler(prefix_caching=prefix_caching)
        for name in "ab":
            scheduler.add(sequence(name, [1] * 10, max_tokens=1))
            advance(scheduler)
        stats = scheduler.stats()
        assert (stats.prefix_queries_tokens, stats.prefix_hits_tokens) == counted


def test_fail_all_ends_running_and_waiting_sequences() -> None:
    """Unknown ids in fail() are ignored."""
    scheduler = make_scheduler(max_num_seqs=1)
    for name in "ab":
        scheduler.add(sequence(name, [1] * 5))
    advance(scheduler)
    assert scheduler.fail(["unknown"], "step_failed", 1.0) == []
    events = scheduler.fail_all("engine_stopped", 3.0)
    assert [(e.request_id, e.failure, e.now_s) for e in events] == [
        ("a", "engine_stopped", 3.0), ("b", "engine_stopped", 3.0),
    ]  # fmt: skip
    assert not scheduler.has_work
    assert (scheduler.num_free_blocks, scheduler.stats().prefill_tokens_pending) == (10, 0)


@pytest.mark.parametrize("is_given", [False, True])
def test_a_given_prefill_budget_is_updated_by_its_owner(is_given: bool) -> None:
    prefill_budget = PrefillBudget() if is_given else None
    scheduler = make_scheduler(prefill_budget)
    scheduler.add(sequence("a", [1] * 10, tpot_s=0.1))
    step = step_of(scheduler, 0.0)
    scheduler.complete(step, {"a": SequenceOutput((7,))}, 1.0)
    assert scheduler.token_budget == (16 if is_given else 1 + 1)
    if prefill_budget is not None:
        prefill_budget.observe_step(10, 1.0)
        assert scheduler.token_budget == 1 + 1


def test_a_fork_reuses_the_prompt_of_its_parent() -> None:
    """Forks need no prefix cache. A fork with prompt logprobs computes the prompt itself."""
    for wants, start in ((None, 9), (0, 0)):
        scheduler = make_scheduler(prefix_caching=False)
        scheduler.add(sequence("a", [1] * 10))
        scheduler.add(sequence("b", [1] * 10, fork_of="a", prompt_logprobs=wants))
        assert ranges(advance(scheduler)) == {"a": (0, 10)}
        step = step_of(scheduler)
        assert ranges(step) == {"a": (10, 11), "b": (start, 10)}
        assert len(step.block_copies.forks) == (wants is None)


def test_steps_ahead_compute_all_chunks_of_a_prompt_with_one_output_token() -> None:
    """The length limit is reached only by the last chunk, which samples the token."""
    scheduler = make_scheduler(max_num_batched_tokens=4)
    scheduler.add(sequence("a", [1] * 10, max_tokens=1))
    steps = [step_of(scheduler), step_of(scheduler)]
    assert [ranges(step) for step in steps] == [{"a": (0, 4)}, {"a": (4, 8)}]
    scheduler.complete(steps[0], {}, 0.0)
    last = step_of(scheduler)
    assert ranges(last) == {"a": (8, 10)}
    scheduler.complete(steps[1], {}, 0.0)
    assert scheduler.schedule(0.0) is None
    [event] = scheduler.complete(last, {"a": SequenceOutput((7,))}, 0.0)
    assert event.finish_reason == "length"


def test_the_budget_goes_to_streams_then_to_prompts_in_their_order() -> None:
    """Two streams and three prompts share seven tokens. A prompt that gets none is not in the step."""
    scheduler = make_scheduler(max_num_batched_tokens=7, max_num_seqs=5, num_blocks=40)
    for name in "ab":
        scheduler.add(sequence(name, [1, 2]))
    advance(scheduler)
    for name, size in (("c", 6), ("d", 3), ("e", 4)):
        scheduler.add(sequence(name, [3] * size))
    found = [ranges(advance(scheduler)) for _ in range(3)]
    assert found == [
        {"a": (2, 3), "b": (2, 3), "c": (0, 5)},
        {"a": (3, 4), "b": (3, 4), "c": (5, 6), "d": (0, 3), "e": (0, 1)},
        {"a": (4, 5), "b": (4, 5), "c": (6, 7), "d": (3, 4), "e": (1, 4)},
    ]


def test_a_budget_below_the_number_of_streams_serves_the_first() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4)
    for name in "abcd":
        scheduler.add(sequence(name, [1]))
    advance(scheduler)
    small = make_scheduler(max_num_batched_tokens=2)
    for name in "abc":
        small.add(sequence(name, [1]))
    assert ranges(advance(small)) == {"a": (0, 1), "b": (0, 1)}
    assert ranges(advance(small)) == {"a": (1, 2), "b": (1, 2)}
    assert ranges(advance(scheduler)).keys() == set("abcd")
