"""Tests of the KV cache: prefix hits, sliding windows, offloading to the host, publication."""

import pytest
from tests.engine_core.kv_cache.block_hashes import block_hashes

from penstock_engine.core.kv_cache.blocks import BlockPool, extend_hashes
from penstock_engine.core.kv_cache.cache import Admission, KVCache
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import BlockCopies, ScheduledSequence, SequenceOutput, Step

SIZE = 4
PROMPT = list(range(21))  # five full blocks, and a token


def sequence(name: str = "a", max_tokens: int = 9) -> Sequence:
    return Sequence(name, PROMPT, SamplingParams(max_tokens=max_tokens), frozenset(), 0.0)


def holding(published: set[int], num_blocks: int = 10) -> BlockPool:
    """Returns a pool without held blocks, with these blocks of the prompt published."""
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
        (None, {0, 1, 3, 4}, 8, 6),  # a block without the one before it cannot be used
        (None, {1, 2, 3, 4}, 0, 6),
        (8, {3, 4}, 20, 3),  # the token at 20 attends to 13 to 20
        (8, {0, 1, 4}, 8, 6),
        (8, {2, 3}, 16, 4),  # the token at 16 attends to 9 to 16
        (9, {3, 4}, 20, 3),
        (10, {3, 4}, 0, 6),  # it attends to 11, in a block that is missing
        (1, {4}, 20, 1),  # it attends to itself only
        (100, {1, 2, 3, 4}, 0, 6),
    ],
)
def test_a_hit_needs_the_blocks_in_the_window_of_the_next_token(
    window_tokens: int | None, published: set[int], num_found_tokens: int, num_held_blocks: int
) -> None:
    cache = KVCache(holding(published), window_tokens=window_tokens)
    one = sequence()
    admission = cache.admit(one)
    assert admission is not None
    assert admission.num_tokens == num_found_tokens
    assert len(one.held_blocks) == num_held_blocks
    assert len(one.block_table) == 6


@pytest.mark.parametrize(
    ("salt", "adapter", "num_found_tokens"),
    [("salt", "adapter", 20), ("adapter", "salt", 0), ("salt", "", 0), ("", "adapter", 0)],
)
def test_a_hit_needs_the_same_salt_and_adapter(
    salt: str, adapter: str, num_found_tokens: int
) -> None:
    cache = KVCache(BlockPool(10, SIZE, prefix_caching=True))
    params = SamplingParams(max_tokens=9)
    one = Sequence("a", PROMPT, params, frozenset(), 0.0, cache_salt="salt", adapter="adapter")
    assert cache.admit(one) == Admission(0)
    cache.publish(one, len(PROMPT))
    cache.release(one)
    other = Sequence("b", PROMPT, params, frozenset(), 0.0, cache_salt=salt, adapter=adapter)
    assert cache.admit(other) == Admission(num_found_tokens)


def test_evicted_blocks_are_restored_from_the_host_among_cached_ones() -> None:
    """Two of five blocks were evicted; the others are still on the device."""
    cache = KVCache(holding({0, 1, 2, 3, 4}, num_blocks=7), num_host_blocks=3)
    pool, hashes = cache.pool, block_hashes(PROMPT, SIZE)
    other = Sequence("b", [7] * 13, SamplingParams(max_tokens=9), frozenset(), 0.0)
    assert cache.admit(other) is not None  # reserves the two empty blocks, and evicts two
    assert [pool.find(block_hash) is None for block_hash in hashes].count(True) == 2
    cache.release(other)
    cache.take_block_copies()
    one = sequence()
    admission = cache.admit(one)
    assert admission is not None
    assert (admission.num_tokens, admission.num_host_tokens) == (20, 8)
    moves = cache.take_block_copies()
    lost = [one.block_table[index] for index in range(5) if index in (3, 4)]
    assert [block for _, block in moves.restores] == lost


def test_a_restore_is_counted_when_it_is_made_and_not_when_it_fails() -> None:
    """A sequence that waits for blocks tries again in every step."""
    cache = KVCache(holding({0, 1, 2, 3, 4}, num_blocks=6), num_host_blocks=5)
    blocker = Sequence("b", [7] * 24, SamplingParams(max_tokens=9), frozenset(), 0.0)
    assert cache.admit(blocker) is not None
    cache.take_block_copies()
    counted = dict(cache.copy_choices)
    for _ in range(3):
        assert cache.admit(sequence()) is None
    assert cache.copy_choices == counted == {("save", "unmeasured"): 5}
    cache.release(blocker)
    assert cache.admit(sequence()) is not None
    assert cache.copy_choices == counted | {("restore", "unmeasured"): 1}


@pytest.mark.parametrize("num_host_blocks", [0, 3])
def test_each_eviction_is_counted_once(num_host_blocks: int) -> None:
    """Five cached blocks are evicted one after another."""
    cache = KVCache(holding({0, 1, 2, 3, 4}, num_blocks=5), num_host_blocks)
    evicted, saved, moved = [], [], []
    for number in range(5):
        one = Sequence(str(number), [7], SamplingParams(max_tokens=9), frozenset(), 0.0)
        assert cache.admit(one) is not None
        evicted.append(cache.num_evicted_blocks)
        saved.append(cache.num_saved_blocks)
        moved.append(len(cache.take_block_copies().saves))
    assert evicted == [1, 2, 3, 4, 5]
    assert saved == (evicted if num_host_blocks else [0] * 5)
    assert moved == [1 if num_host_blocks else 0] * 5


def test_contents_in_the_host_are_not_copied_again() -> None:
    cache = KVCache(holding({0}, num_blocks=2), num_host_blocks=3)
    taker = Sequence("b", [7] * 8, SamplingParams(max_tokens=9), frozenset(), 0.0)
    owner = Sequence("a", PROMPT[:5], SamplingParams(max_tokens=9), frozenset(), 0.0)
    saves = []
    for _ in range(2):
        assert cache.admit(taker) is not None
        saves.append(len(cache.take_block_copies().saves))
        cache.release(taker)
        assert cache.admit(owner) is not None
        assert len(cache.take_block_copies().restores) == 1
        cache.release(owner)
    assert saves == [1, 0]
    assert (cache.num_evicted_blocks, cache.num_saved_blocks) == (2, 2)


@pytest.mark.parametrize(
    ("num_host_blocks", "copy_s", "saved_blocks"),
    [(0, None, 0), (9, None, 5), (2, None, 5), (9, 0.0001, 5), (9, 1.0, 0)],
    ids=["no-host", "unmeasured", "small-host", "cheap", "expensive"],
)
def test_each_block_of_an_eviction_is_counted_and_saved(
    num_host_blocks: int, copy_s: float | None, saved_blocks: int
) -> None:
    """Five blocks are evicted together; the host has none of them. Saves have the order of evictions."""
    cache = KVCache(holding({0, 1, 2, 3, 4}, num_blocks=5), num_host_blocks)
    if copy_s is not None:
        for num_tokens, moves in (
            (1, BlockCopies()),
            (9, BlockCopies()),
            (1, BlockCopies(saves=((0, 0), (1, 1)))),
        ):
            num_copies = len(moves.saves)
            step = Step((scheduled(num_tokens),), moves)
            cache.observe_step(step, 0.01 + 0.001 * num_tokens + copy_s * num_copies)
    taker = Sequence("b", [7] * 20, SamplingParams(max_tokens=9), frozenset(), 0.0)
    assert cache.admit(taker) is not None
    saves = cache.take_block_copies().saves
    assert cache.num_evicted_blocks == 5
    assert cache.num_saved_blocks == len(saves) == saved_blocks
    assert [block for block, _ in saves] == [4, 3, 2, 1, 0][:saved_blocks]
    if num_host_blocks == 2:
        assert [slot for _, slot in saves] == [0, 1, 0, 1, 0], "the oldest are replaced"
    cache.check([taker])


def scheduled(num_tokens: int) -> ScheduledSequence:
    params = SamplingParams(max_tokens=9)
    return ScheduledSequence("a", 0, (1,) * num_tokens, (), True, params, [], num_tokens)


def test_saves_and_restores_have_the_same_cost() -> None:
    """A step with two saves, two restores and a token takes 2.011 s."""
    cache = KVCache(BlockPool(4, SIZE, prefix_caching=True), num_host_blocks=4)
    for num_tokens in (1, 9):
        cache.observe_step(Step((scheduled(num_tokens),)), 0.01 + 0.001 * num_tokens)
    moves = BlockCopies(saves=((0, 0), (1, 1)), restores=((2, 2), (3, 3)))
    cache.observe_step(Step((scheduled(1),), moves), 0.011 + 2.0)
    prices = cache._offload.costs
    assert (prices.token_s, prices.copy_s) == (pytest.approx(0.001), pytest.approx(0.5))


def test_an_eviction_does_not_copy_a_block_that_the_host_has() -> None:
    """The other blocks of the eviction are copied, whether they come before it or after it."""
    cache = KVCache(holding({0, 1, 2}, num_blocks=3), num_host_blocks=9)
    assert cache._host.keep(block_hashes(PROMPT, SIZE)[1]) == 0
    taker = Sequence("b", [7] * 12, SamplingParams(max_tokens=9), frozenset(), 0.0)
    assert cache.admit(taker) is not None
    assert cache.take_block_copies().saves == ((2, 1), (0, 2))
    assert (cache.num_evicted_blocks, cache.num_saved_blocks) == (3, 3)


def test_a_restored_slot_is_not_overwritten_by_the_block_evicted_for_it() -> None:
    """The host has one slot: the block evicted for the restored one is not saved over it."""
    cache = KVCache(holding({0}, num_blocks=2), num_host_blocks=1)
    owner = Sequence("a", PROMPT[:5], SamplingParams(max_tokens=9), frozenset(), 0.0)
    other = Sequence("b", [7] * 5, SamplingParams(max_tokens=9), frozenset(), 0.0)
    assert cache.admit(other) is not None
    assert len(cache.take_block_copies().saves) == 1
    cache.publish(other, 5)
    cache.release(other)
    admission = cache.admit(owner)
    assert admission == Admission(4, 4)
    moves = cache.take_block_copies()
    assert (len(moves.saves), len(moves.restores)) == (0, 1)
    assert (cache.num_evicted_blocks, cache.num_saved_blocks) == (2, 1)
    cache.check([owner])


@pytest.mark.parametrize(
    ("num_before", "num_computed"),
    [(0, 0), (0, 3), (0, 4), (0, 12), (3, 4), (4, 7), (4, 8), (5, 11), (5, 12), (8, 8), (8, 12)],
)
def test_full_blocks_are_published_once_they_are_computed(
    num_before: int, num_computed: int
) -> None:
    """A call publishes the newly completed blocks, and no partial one."""
    cache = KVCache(BlockPool(6, SIZE, prefix_caching=True))
    one = sequence()
    assert cache.admit(one) is not None
    one.num_computed_tokens = num_before
    cache.publish(one, num_computed)
    found = [
        index
        for index, h in enumerate(block_hashes(PROMPT, SIZE))
        if cache.pool.find(h) is not None
    ]
    assert found == list(range(num_before // SIZE, num_computed // SIZE))


def test_discarded_blocks_are_removed_from_device_and_host() -> None:
    """Blocks that other sequences published stay."""
    cache = KVCache(holding({0, 1}, num_blocks=4), num_host_blocks=4)
    hashes = block_hashes(PROMPT, SIZE)
    assert cache._host.keep(hashes[2]) == 0
    assert cache._host.keep(b"other") == 1
    one = sequence()
    extend_hashes(one.block_hashes, one.tokens, SIZE)
    cache.discard(one)
    assert [cache.pool.find(h) for h in hashes] == [None] * 5
    assert cache._host.find(hashes[2]) is None
    assert cache._host.find(b"other") == 1
    cache.check([])


def test_a_reset_clears_device_and_host() -> None:
    cache = KVCache(holding({0, 1}, num_blocks=4), num_host_blocks=4)
    assert cache._host.keep(b"other") == 0
    cache.reset_prefix_cache()
    assert cache.pool.find(block_hashes(PROMPT, SIZE)[0]) is None
    assert cache._host.num_blocks == 0


@pytest.mark.parametrize(
    ("num_held", "num_tokens", "num_free", "grows", "num_blocks"),
    [
        (8, 8, 2, True, 2), (8, 9, 2, True, 3), (8, 16, 2, True, 4), (8, 17, 2, False, 2),
        (8, 3, 0, True, 2), (8, 8, 0, True, 2), (8, 9, 0, False, 2),
    ],
)  # fmt: skip
def test_a_sequence_grows_by_the_blocks_it_lacks(
    num_held: int, num_tokens: int, num_free: int, grows: bool, num_blocks: int
) -> None:
    cache = KVCache(BlockPool(num_held // SIZE + num_free, SIZE, prefix_caching=True))
    one = Sequence("a", [1] * num_held, SamplingParams(max_tokens=9), frozenset(), 0.0)
    assert cache.admit(one) == Admission(0)
    assert cache.grow(one, num_tokens) is grows
    assert len(one.block_table) == num_blocks
    cache.check([one])


def run(scheduler: Scheduler, one: Sequence) -> list[int]:
    """Runs a sequence. Returns the number of held blocks after each step."""
    assert scheduler.add(one) is None
    held = []
    while (step := scheduler.schedule(0.0)) is not None:
        scheduler.complete(step, {s.request_id: SequenceOutput((1,)) for s in step.sequences}, 0.0)
        scheduler.check()
        held.append(scheduler.config.num_blocks - scheduler.num_free_blocks)
    return held


@pytest.mark.parametrize(("window_tokens", "most_held"), [(None, 31), (8, 3), (9, 3), (1, 1)])
def test_a_window_bounds_the_blocks_of_a_long_answer(
    window_tokens: int | None, most_held: int
) -> None:
    config = SchedulerConfig(
        max_num_seqs=1, max_num_batched_tokens=64, max_model_len=200, block_size=SIZE,
        num_blocks=60, window_tokens=window_tokens,
    )  # fmt: skip
    held = run(Scheduler(config), sequence(max_tokens=104))
    assert max(held) == most_held
    assert held[-1] == 0
