"""What of a prefix is found, and what a window gives back."""

import pytest

from penstock_engine.core.blocks import BlockPool, block_hashes
from penstock_engine.core.cache import KVCache
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import Sampled

SIZE = 4
PROMPT = list(range(21))  # five full blocks, and a token


def sequence(name: str = "a", max_tokens: int = 9) -> Sequence:
    return Sequence(name, PROMPT, SamplingParams(max_tokens=max_tokens), frozenset(), 0.0)


def holding(published: set[int], num_blocks: int = 10) -> BlockPool:
    """A pool in which nobody holds anything, with these blocks of the prompt."""
    pool = BlockPool(num_blocks, SIZE, prefix_caching=True)
    blocks = pool.reserve(num_blocks)
    assert blocks is not None
    for index, block_hash in enumerate(block_hashes(PROMPT, SIZE)):
        if index in published:
            pool.publish(blocks[index], block_hash)
    pool.release(blocks)
    return pool


@pytest.mark.parametrize(
    ("window_tokens", "published", "num_found_tokens", "num_held_blocks"),
    [
        (None, {0, 1, 2, 3, 4}, 20, 6),
        (None, {0, 1, 3, 4}, 8, 6),  # a later block without the one before it is of no use
        (None, {1, 2, 3, 4}, 0, 6),
        (8, {3, 4}, 20, 3),  # the token at 20 sees 13 to 20
        (8, {0, 1, 4}, 8, 6),
        (8, {2, 3}, 16, 4),  # the token at 16 sees 9 to 16
        (9, {3, 4}, 20, 3),
        (10, {3, 4}, 0, 6),  # it sees 11, in a block that is lost
        (1, {4}, 20, 1),  # it sees only itself
        (100, {1, 2, 3, 4}, 0, 6),
    ],
)
def test_of_a_prefix_all_is_found_that_its_next_token_sees(
    window_tokens: int | None, published: set[int], num_found_tokens: int, num_held_blocks: int
) -> None:
    cache = KVCache(holding(published), window_tokens=window_tokens)
    one = sequence()
    admission = cache.admit(one)
    assert admission is not None
    assert admission.num_tokens == num_found_tokens
    assert len(one.held_blocks) == num_held_blocks
    assert len(one.block_table) == 6


def test_what_the_device_has_lost_is_taken_from_the_host_between_what_it_has() -> None:
    """Two of five blocks were evicted; the others stay where they are."""
    cache = KVCache(holding({0, 1, 2, 3, 4}, num_blocks=7), num_host_blocks=3)
    pool, hashes = cache.pool, block_hashes(PROMPT, SIZE)
    other = Sequence("b", [7] * 13, SamplingParams(max_tokens=9), frozenset(), 0.0)
    assert cache.admit(other) is not None  # takes the two without contents, and two more
    assert [pool.find(block_hash) is None for block_hash in hashes].count(True) == 2
    cache.release(other)
    cache.take_moves()
    one = sequence()
    admission = cache.admit(one)
    assert admission is not None
    assert (admission.num_tokens, admission.num_host_tokens) == (20, 8)
    moves = cache.take_moves()
    lost = [one.block_table[index] for index in range(5) if index in (3, 4)]
    assert [block for _, block in moves.restores] == lost


def test_a_restore_is_counted_when_it_is_made_and_not_when_it_fails() -> None:
    """A sequence that waits for blocks asks in every step."""
    cache = KVCache(holding({0, 1, 2, 3, 4}, num_blocks=6), num_host_blocks=5)
    blocker = Sequence("b", [7] * 24, SamplingParams(max_tokens=9), frozenset(), 0.0)
    assert cache.admit(blocker) is not None
    cache.take_moves()
    counted = dict(cache.copy_choices)
    for _ in range(3):
        assert cache.admit(sequence()) is None
    assert cache.copy_choices == counted == {("save", "unmeasured"): 5}
    cache.release(blocker)
    assert cache.admit(sequence()) is not None
    assert cache.copy_choices == counted | {("restore", "unmeasured"): 1}


@pytest.mark.parametrize("num_host_blocks", [0, 3])
def test_each_eviction_is_counted_once(num_host_blocks: int) -> None:
    """Five blocks with contents, evicted one after another."""
    cache = KVCache(holding({0, 1, 2, 3, 4}, num_blocks=5), num_host_blocks)
    evicted, saved, moved = [], [], []
    for number in range(5):
        one = Sequence(str(number), [7], SamplingParams(max_tokens=9), frozenset(), 0.0)
        assert cache.admit(one) is not None
        evicted.append(cache.num_evicted_blocks)
        saved.append(cache.num_saved_blocks)
        moved.append(len(cache.take_moves().saves))
    assert evicted == [1, 2, 3, 4, 5]
    assert saved == (evicted if num_host_blocks else [0] * 5)
    assert moved == [1 if num_host_blocks else 0] * 5


def test_contents_that_the_host_has_already_are_kept_without_a_copy() -> None:
    cache = KVCache(holding({0}, num_blocks=2), num_host_blocks=3)
    taker = Sequence("b", [7] * 8, SamplingParams(max_tokens=9), frozenset(), 0.0)
    owner = Sequence("a", PROMPT[:5], SamplingParams(max_tokens=9), frozenset(), 0.0)
    saves = []
    for _ in range(2):
        assert cache.admit(taker) is not None
        saves.append(len(cache.take_moves().saves))
        cache.release(taker)
        assert cache.admit(owner) is not None
        assert len(cache.take_moves().restores) == 1
        cache.release(owner)
    assert saves == [1, 0]
    assert (cache.num_evicted_blocks, cache.num_saved_blocks) == (2, 2)


def run(scheduler: Scheduler, one: Sequence) -> list[int]:
    """How many blocks are held after each step."""
    assert scheduler.add(one) is None
    held = []
    while (step := scheduler.schedule(0.0)) is not None:
        scheduler.complete(step, {s.request_id: Sampled((1,)) for s in step.sequences}, 0.0)
        scheduler.check()
        held.append(scheduler.config.num_blocks - scheduler.num_free_blocks)
    return held


@pytest.mark.parametrize(("window_tokens", "most_held"), [(None, 31), (8, 3), (9, 3), (1, 1)])
def test_a_window_bounds_what_a_long_answer_holds(
    window_tokens: int | None, most_held: int
) -> None:
    config = SchedulerConfig(
        max_num_seqs=1, max_num_batched_tokens=64, max_model_len=200, block_size=SIZE,
        num_blocks=60, window_tokens=window_tokens,
    )  # fmt: skip
    held = run(Scheduler(config), sequence(max_tokens=104))
    assert max(held) == most_held
    assert held[-1] == 0


def test_a_fork_that_comes_late_does_not_take_what_its_parent_gave_back() -> None:
    """At once, it shares the blocks it sees; once the parent has gone on, it is one like others."""
    cache = KVCache(BlockPool(20, SIZE, prefix_caching=False), window_tokens=8)
    parent, early, late = sequence("p"), sequence("e"), sequence("l")
    assert cache.admit(parent) is not None
    parent.num_computed_tokens = len(PROMPT)
    cache.release_unseen(parent)
    admission = cache.fork(early, parent)
    assert admission is not None
    assert admission.num_tokens == 20
    assert early.held_blocks[:2] == parent.block_table[3:5]
    parent.num_computed_tokens = 40
    assert cache.grow(parent, 41)
    cache.release_unseen(parent)
    admission = cache.fork(late, parent)
    assert admission is not None
    assert admission.num_tokens == 0
    early.num_computed_tokens = 20
    cache.check([parent, early, late])
