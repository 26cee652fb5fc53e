"""Tests of the scheduler's counters: exact values after a few steps."""

from dataclasses import replace

from tests.engine_core.small_scheduler import step_of

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.stats import Counters
from penstock_engine.core.step import SequenceOutput


def make_scheduler(speculation: SpeculationConfig | None = None, **changes: int) -> Scheduler:
    values = {
        "max_num_seqs": 4, "max_num_batched_tokens": 16, "max_model_len": 32, "block_size": 4,
        "num_blocks": 8,
    }  # fmt: skip
    return Scheduler(SchedulerConfig(**(values | changes), speculation=speculation))  # type: ignore[arg-type]


def sequence(name: str, prompt: list[int], max_tokens: int = 1, adapter: str = "") -> Sequence:
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0)
    return Sequence(name, prompt, sampling, frozenset(), 0.0, adapter=adapter)


def run(scheduler: Scheduler, *outputs: tuple[int, ...]) -> None:
    """Runs one step per entry. Every sequence of the step samples the entry's tokens."""
    for tokens in outputs:
        step = step_of(scheduler)
        results = {s.request_id: SequenceOutput(tokens, s.num_drafts) for s in step.sequences}
        scheduler.complete(step, results, 0.0)


def test_a_wait_for_blocks_is_counted_once_per_sequence() -> None:
    """Two sequences wait, but only the first of the queue tries to reserve blocks."""
    scheduler = make_scheduler()
    scheduler.add(sequence("a", [1] * 20, max_tokens=9))
    run(scheduler, (5,), (5,))
    scheduler.add(sequence("b", [2] * 20))
    scheduler.add(sequence("c", [3] * 20))
    counted = []
    while scheduler.has_work:
        run(scheduler, (5,))
        counted.append(scheduler.stats().waits_for_blocks)
    assert counted[:3] == [1, 1, 1]
    assert counted[-1] == 2


def test_busy_seconds_count_overlapping_steps_once() -> None:
    scheduler = make_scheduler()
    scheduler.add(sequence("a", [1] * 4, max_tokens=9))
    first = step_of(scheduler, now_s=1.0)
    ahead = step_of(scheduler, now_s=2.0)
    scheduler.complete(first, {"a": SequenceOutput((5,))}, 4.0)
    assert scheduler.stats().busy_s == 3.0
    scheduler.complete(ahead, {"a": SequenceOutput((5,))}, 5.0)
    assert scheduler.stats().busy_s == 4.0
    last = step_of(scheduler, now_s=8.0)
    scheduler.complete(last, {"a": SequenceOutput((5,))}, 10.0)
    assert scheduler.stats().busy_s == 6.0


def test_prompt_tokens_are_counted_as_computed_or_cached_by_tier() -> None:
    """12 tokens are computed; then 8 are found on the device; then, after eviction, 8 in the host."""
    scheduler = make_scheduler(num_blocks=4, max_model_len=16, num_host_blocks=8)

    def counted() -> tuple[int, int, int, int]:
        stats = scheduler.stats()
        assert stats.prompt_tokens_cached == (
            stats.prompt_tokens_from_device + stats.prompt_tokens_from_host
        )
        return (
            stats.prompt_tokens_computed, stats.prompt_tokens_from_device,
            stats.prompt_tokens_from_host, stats.generation_tokens,
        )  # fmt: skip

    prompt = list(range(12))
    scheduler.add(sequence("a", prompt))
    run(scheduler, (5,))
    assert counted() == (12, 0, 0, 1)
    scheduler.add(sequence("b", prompt))
    run(scheduler, (5,))
    assert counted() == (16, 8, 0, 2)
    scheduler.add(sequence("other", [9] * 13))
    run(scheduler, (5,))
    assert counted() == (29, 8, 0, 3)
    scheduler.add(sequence("c", prompt))
    run(scheduler, (5,))
    assert counted() == (33, 8, 8, 4)


def test_a_restored_host_slot_can_be_replaced_in_the_next_step() -> None:
    """A host slot is pinned only until the step that copies from it is scheduled."""
    scheduler = make_scheduler(num_blocks=2, max_model_len=8, num_host_blocks=1)
    saved = []
    for name, token in (("a", 1), ("b", 2), ("a2", 1), ("b2", 2), ("c", 3)):
        scheduler.add(sequence(name, [token] * 5))
        run(scheduler, (5,))
        saved.append(scheduler.stats().saved_blocks)
    assert saved == [0, 1, 1, 2, 3]


def test_drafts_are_counted_as_proposed_and_accepted() -> None:
    counters = Counters()
    for num_drafts, num_right in ((2, 1), (1, 0), (3, 3), (2, 2)):
        counters.count_drafts(num_drafts, num_right)
    assert (counters.drafts, counters.draft_tokens) == (4, 8)
    assert counters.accepted_by_position == (3, 2, 1)


def test_only_steps_with_drafts_count_drafts() -> None:
    """A single step has drafts: two, of which one is accepted."""
    config = SpeculationConfig(method="ngram", num_speculative_tokens=2, prompt_lookup_min=1)
    scheduler = make_scheduler(config)
    scheduler.add(sequence("a", [1, 2, 1, 2, 1], max_tokens=6))
    run(scheduler, (2,), (1, 7), (8,), (6,), (9,))
    stats = scheduler.stats()
    assert not scheduler.has_work
    assert stats.generation_tokens == 6
    assert (stats.drafts, stats.draft_tokens) == (1, 2)
    assert stats.accepted_by_position == (1, 0)


def test_derived_counters_are_differences() -> None:
    counted = replace(
        make_scheduler().stats(), evicted_blocks=7, saved_blocks=2, prompt_tokens_cached=9,
        prompt_tokens_from_host=4,
    )  # fmt: skip
    assert (counted.dropped_blocks, counted.prompt_tokens_from_device) == (5, 5)


def test_sequences_of_other_adapters_overtake_until_the_maximum_wait() -> None:
    """After the wait, no sequence with an adapter overtakes one that waits for another adapter."""
    for now_s, admitted in ((1.0, {"x", "x2"}), (1.001, {"x"})):
        scheduler = make_scheduler(max_adapters=1)
        for name, adapter in (("x", "X"), ("y", "Y")):
            scheduler.add(sequence(name, [1], max_tokens=9, adapter=adapter))
        run(scheduler, (5,))
        scheduler.add(sequence("x2", [1], adapter="X"))
        assert {s.request_id for s in step_of(scheduler, now_s).sequences} == admitted
