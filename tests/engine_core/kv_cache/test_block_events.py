"""Tests of block events: their fields, and that following them gives the blocks of the prefix cache."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from benchmarks.engine.scheduler_steps import EngineMachine, configs
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, precondition, rule
from tests.engine_core.kv_cache.block_hashes import block_hashes
from tests.engine_core.small_scheduler import advance, make_scheduler, make_sequence, step_of

from penstock_engine.core.kv_cache.block_events import (
    AllBlocksCleared,
    BlockEvent,
    BlocksRemoved,
    BlocksStored,
)
from penstock_engine.core.kv_cache.blocks import BlockPool
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.step import SequenceOutput

SIZE = 4
PROMPT = list(range(9))
FIRST, SECOND = block_hashes(PROMPT, SIZE)


def run(scheduler: Scheduler) -> None:
    while scheduler.has_work:
        advance(scheduler)


def test_the_full_blocks_of_a_prompt_are_one_event() -> None:
    scheduler = make_scheduler(block_events=True)
    scheduler.add(make_sequence("a", 9))
    advance(scheduler)

    assert scheduler.take_block_events() == [
        BlocksStored((FIRST, SECOND), None, tuple(PROMPT[:8]), "", "")
    ]
    assert scheduler.take_block_events() == []


def test_a_block_of_the_answer_follows_its_parent() -> None:
    scheduler = make_scheduler(block_events=True)
    scheduler.add(make_sequence("a", 9, max_tokens=6))
    advance(scheduler)
    scheduler.take_block_events()
    run(scheduler)

    tokens = [*PROMPT, 7, 7, 7]
    assert scheduler.take_block_events() == [
        BlocksStored((block_hashes(tokens, SIZE)[2],), SECOND, tuple(tokens[8:12]), "", "")
    ]


def test_a_cached_prefix_is_not_stored_again() -> None:
    scheduler = make_scheduler(block_events=True)
    for name in ("a", "b"):
        scheduler.add(make_sequence(name, 9, max_tokens=1))
        run(scheduler)

    assert len(scheduler.take_block_events()) == 1


def test_of_two_equal_prompts_in_one_step_only_one_is_stored() -> None:
    scheduler = make_scheduler(block_events=True, max_num_batched_tokens=32)
    for name in ("a", "b"):
        scheduler.add(make_sequence(name, 9, max_tokens=1))
    run(scheduler)

    assert len(scheduler.take_block_events()) == 1


def test_adapter_and_salt_are_in_the_event() -> None:
    scheduler = make_scheduler(block_events=True, max_adapters=1)
    sequence = make_sequence("a", 9, adapter="x#1")
    sequence.cache_salt = "tenant"
    scheduler.add(sequence)
    advance(scheduler)

    [event] = scheduler.take_block_events()
    assert isinstance(event, BlocksStored)
    assert (event.adapter, event.cache_salt) == ("x#1", "tenant")
    assert event.hashes == tuple(sequence.block_hashes) != (FIRST, SECOND)


def test_evicted_blocks_are_removed_the_end_of_a_prefix_first() -> None:
    scheduler = make_scheduler(block_events=True, num_blocks=4)
    scheduler.add(make_sequence("a", 9, max_tokens=1))
    run(scheduler)
    scheduler.take_block_events()
    scheduler.add(make_sequence("b", 13, max_tokens=1, first=100))
    run(scheduler)

    hashes = tuple(block_hashes(list(range(100, 112)), SIZE))
    assert scheduler.take_block_events() == [
        BlocksRemoved((SECOND, FIRST)),
        BlocksStored(hashes, None, tuple(range(100, 112)), "", ""),
    ]


def test_the_blocks_of_a_sequence_with_nan_are_removed() -> None:
    scheduler = make_scheduler(block_events=True)
    scheduler.add(make_sequence("a", 9))
    advance(scheduler)
    scheduler.take_block_events()
    scheduler.complete(step_of(scheduler), {"a": SequenceOutput(is_corrupt=True)}, 0.0)

    assert scheduler.take_block_events() == [BlocksRemoved((FIRST, SECOND))]


def test_a_reset_clears_all_after_the_events_before_it() -> None:
    scheduler = make_scheduler(block_events=True)
    scheduler.add(make_sequence("a", 9, max_tokens=1))
    run(scheduler)
    scheduler.reset_prefix_cache()

    assert [type(event) for event in scheduler.take_block_events()] == [
        BlocksStored,
        AllBlocksCleared,
    ]


@pytest.mark.parametrize("changes", [{}, {"block_events": True, "prefix_caching": False}])
def test_nothing_is_recorded_without_events_or_prefix_caching(changes: dict[str, bool]) -> None:
    scheduler = make_scheduler(**changes)
    scheduler.add(make_sequence("a", 9))
    run(scheduler)

    assert scheduler.take_block_events() == []


class Subscriber:
    """Follows events. Raises AssertionError if one contradicts those before it."""

    def __init__(self) -> None:
        self.cached: set[bytes] = set()
        self.known: set[bytes] = set()

    def follow(self, events: Iterable[BlockEvent], block_size: int) -> None:
        for event in events:
            match event:
                case BlocksStored(hashes, parent, tokens):
                    assert hashes, "nothing is stored"
                    assert len(tokens) == len(hashes) * block_size
                    assert self.cached.isdisjoint(hashes), "a block is stored twice"
                    assert parent is None or parent in self.known, "the parent is unknown"
                    self.cached |= {*hashes}
                    self.known |= {*hashes}
                case BlocksRemoved(hashes):
                    assert self.cached.issuperset(hashes), "an unknown block is removed"
                    self.cached -= {*hashes}
                case AllBlocksCleared():
                    self.cached.clear()


class EventMachine(EngineMachine):
    """An engine with a subscriber, and with resets of the cache."""

    @initialize(config=configs)
    def start(self, config: SchedulerConfig) -> None:
        super().start(replace(config, block_events=True))
        self.subscriber = Subscriber()

    @rule()
    @precondition(lambda self: not self.open)
    def reset(self) -> None:
        self.scheduler.reset_prefix_cache()

    @invariant()
    def events_give_the_index(self) -> None:
        if not hasattr(self, "subscriber"):
            return
        config = self.scheduler.config
        self.subscriber.follow(self.scheduler.take_block_events(), config.block_size)
        pool: BlockPool = self.scheduler._cache.pool
        known = self.subscriber.known
        assert {h for h in known if pool.find(h) is not None} == self.subscriber.cached
        assert pool.num_cached_blocks == len(self.subscriber.cached)


TestEventMachine = EventMachine.TestCase
TestEventMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
