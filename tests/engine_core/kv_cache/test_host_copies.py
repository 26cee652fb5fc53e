"""Tests of block copies to and from the host, for each way in which a sequence gets blocks."""

import pytest
from tests.engine_core.kv_cache.block_hashes import block_hashes

from penstock_engine.core.kv_cache.blocks import BlockPool
from penstock_engine.core.kv_cache.cache import Admission, KVCache
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import BlockCopies, ScheduledSequence, Step

SIZE = 4
PROMPT = list(range(13))  # three full blocks, and a token
HASHES = block_hashes(PROMPT, SIZE)


def sequence(name: str, prompt: list[int] = PROMPT) -> Sequence:
    return Sequence(name, prompt, SamplingParams(max_tokens=9), frozenset(), 0.0)


def cached(num_blocks: int = 4) -> KVCache:
    """Returns a cache with the prompt's three full blocks in blocks 0 to 2, none of them held."""
    cache = KVCache(BlockPool(num_blocks, SIZE, prefix_caching=True), num_host_blocks=9)
    one = sequence("first")
    assert cache.admit(one) == Admission(0)
    cache.publish(one, 13)
    cache.release(one)
    return cache


def with_prompt_in_host() -> KVCache:
    cache = cached()
    other = sequence("other", [7] * 13)
    assert cache.admit(other) == Admission(0)
    assert cache.take_block_copies() == BlockCopies(saves=((2, 0), (1, 1), (0, 2)))
    cache.release(other)
    return cache


def observe_costs(cache: KVCache, copy_s: float) -> None:
    """Makes the cache observe steps in which a copy takes `copy_s` and a token 1 ms."""
    part = ScheduledSequence("a", 0, (1,), (), True, SamplingParams(max_tokens=9), [], 1)
    for num_tokens in (1, 9):
        step = Step((part._replace(token_ids=(1,) * num_tokens),))
        cache.observe_step(step, 0.01 + 0.001 * num_tokens)
    cache.observe_step(Step((part,), BlockCopies(saves=((0, 0),))), 0.011 + copy_s)


def test_blocks_evicted_by_a_growing_sequence_are_saved_first() -> None:
    cache = cached()
    one = sequence("a", [7])
    assert cache.admit(one) == Admission(0)
    assert cache.take_block_copies() == BlockCopies()
    assert cache.grow(one, 9)
    assert cache.take_block_copies() == BlockCopies(saves=((2, 0), (1, 1)))
    assert one.block_table == [3, 2, 1]
    assert (cache.num_evicted_blocks, cache.num_saved_blocks) == (2, 2)


def test_blocks_evicted_by_a_fork_are_saved_first() -> None:
    cache = cached(num_blocks=6)
    parent, fork = sequence("p", [7] * 9), sequence("f", [7] * 9)
    assert cache.admit(parent) == Admission(0)
    assert cache.take_block_copies() == BlockCopies()
    assert cache.fork(fork, parent) == Admission(8)
    assert fork.block_table == [*parent.block_table[:2], 2]
    assert cache.take_block_copies() == BlockCopies(saves=((2, 0),))


def test_restored_blocks_can_be_shared_at_once() -> None:
    cache = with_prompt_in_host()
    one, other = sequence("a"), sequence("b", PROMPT[:12])
    assert cache.admit(one) == Admission(12, 12)
    assert [cache.pool.find(h) for h in HASHES] == one.block_table[:3]
    restored = one.block_table[:3]
    assert cache.take_block_copies().restores == tuple(zip((2, 1, 0), restored, strict=True))
    cache.release(one)
    assert cache.admit(other) == Admission(8, 0)
    assert other.block_table[:2] == restored[:2]
    assert cache.copy_choices == {("save", "unmeasured"): 3, ("restore", "unmeasured"): 1}


@pytest.mark.parametrize(
    ("copy_s", "admission", "choice"),
    [
        (0.0001, Admission(12, 12), ("restore", "cheaper")),
        (1.0, Admission(0, 0), ("compute", "cheaper")),
    ],
)
def test_a_prefix_in_the_host_is_recomputed_if_that_is_cheaper(
    copy_s: float, admission: Admission, choice: tuple[str, str]
) -> None:
    cache = with_prompt_in_host()
    observe_costs(cache, copy_s)
    before = dict(cache.copy_choices)
    one = sequence("a")
    assert cache.admit(one) == admission
    assert len(cache.take_block_copies().restores) == admission.num_host_tokens // SIZE
    made = {c: n for c, n in cache.copy_choices.items() if n != before.get(c, 0)}
    assert made == {choice: 1}
    cache.check([one])


def test_blocks_on_the_device_are_reused_even_if_copies_are_expensive() -> None:
    """The first block is on the device; the others are in the host only."""
    cache = cached()
    other = sequence("other", [7] * 9)
    assert cache.admit(other) == Admission(0)
    assert len(cache.take_block_copies().saves) == 2
    cache.release(other)
    observe_costs(cache, 1.0)
    assert cache.admit(sequence("a")) == Admission(4, 0)


def test_no_block_is_published_or_found_without_prefix_caching() -> None:
    cache = KVCache(BlockPool(9, SIZE, prefix_caching=False), num_host_blocks=9)
    for name in "ab":
        one = sequence(name)
        assert cache.admit(one) == Admission(0)
        cache.publish(one, 13)
        cache.release(one)
    assert [cache.pool.find(h) for h in HASHES] == [None] * 3


@pytest.mark.parametrize(
    ("num_computed", "num_unseen", "num_held"), [(12, 1, 3), (11, 1, 3), (10, 0, 4), (13, 1, 3)]
)
def test_blocks_outside_the_window_are_released_once(
    num_computed: int, num_unseen: int, num_held: int
) -> None:
    """The window has eight tokens: the token at 11 attends to 4 to 11."""
    cache = KVCache(BlockPool(4, SIZE, prefix_caching=False), window_tokens=8)
    one = sequence("a")
    assert cache.admit(one) == Admission(0)
    one.num_computed_tokens = num_computed
    for _ in range(2):
        cache.release_skipped(one)
        assert (one.num_skipped_blocks, len(one.held_blocks)) == (num_unseen, num_held)
        assert cache.pool.num_free_blocks == 4 - num_held
        cache.check([one])
    cache.release(one)
    assert (one.block_table, one.num_skipped_blocks, cache.pool.num_free_blocks) == ([], 0, 4)
