"""Tests of block hashes and of the block pool: sharing, eviction, publication."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine_core.kv_cache.block_hashes import block_hashes

from penstock_engine.core.kv_cache.blocks import BlockPool, extend_hashes, root_hash


def fill(pool: BlockPool, tokens: list[int]) -> list[int]:
    """Reserves blocks for `tokens` and publishes the full ones. Returns the block table."""
    blocks = pool.reserve(-(-len(tokens) // pool.block_size))
    assert blocks is not None
    for block, block_hash in zip(blocks, block_hashes(tokens, pool.block_size), strict=False):
        pool.publish(block, block_hash)
    return blocks


def find_all(pool: BlockPool, hashes: list[bytes]) -> list[int]:
    return [block for block in map(pool.find, hashes) if block is not None]


def test_only_full_blocks_have_hashes() -> None:
    """A partial block at the end of a sequence cannot be shared."""
    assert len(block_hashes(list(range(11)), 4)) == 2


def test_hashes_are_the_same_everywhere() -> None:
    """The gateway computes the same hashes: changing this value needs a new version."""
    [block_hash] = block_hashes([1, 2, 3, 4], 4)
    assert block_hash.hex().startswith("708290f952b631c6")


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(1, 8))
def test_hashes_of_a_prefix_are_a_prefix_of_the_hashes(tokens: list[int], block_size: int) -> None:
    """Hashes are chained: equal prefixes have equal hashes."""
    hashes = block_hashes(tokens, block_size)
    assert (
        block_hashes(tokens[: len(tokens) // 2], block_size)
        == hashes[: len(tokens) // 2 // block_size]
    )


def test_a_different_first_token_changes_every_hash() -> None:
    """The hash of a block covers all tokens before it."""
    one, other = block_hashes([0, *range(11)], 4), block_hashes([1, *range(11)], 4)
    assert not set(one) & set(other)


def test_salts_keep_tenants_apart() -> None:
    """A cache hit across tenants would reveal another tenant's prompt."""
    assert not set(block_hashes([1] * 8, 4, "a")) & set(block_hashes([1] * 8, 4, "b"))


def test_a_matched_block_is_shared_not_copied() -> None:
    """The block is free only after both tables are released."""
    pool = BlockPool(4, 4, prefix_caching=True)
    first = fill(pool, [1, 2, 3, 4])
    shared = find_all(pool, block_hashes([1, 2, 3, 4], 4))
    second = pool.reserve(1, shared)
    assert second is not None
    assert second[0] == first[0]
    pool.check([first, second])
    pool.release(first)
    pool.check([second])
    assert pool.num_free_blocks == 2


def test_reserve_takes_all_or_nothing() -> None:
    """A failed reservation changes nothing, even if its shared blocks were idle."""
    pool = BlockPool(3, 4, prefix_caching=True)
    table = fill(pool, list(range(8)))
    pool.release(table)
    assert pool.reserve(2, find_all(pool, block_hashes(list(range(8)), 4))) is None
    pool.check([])
    assert find_all(pool, block_hashes(list(range(8)), 4)) == table


def test_the_tail_of_a_chain_is_evicted_before_its_root() -> None:
    """A prefix without its tail can still be reused; a tail without its prefix cannot."""
    pool = BlockPool(3, 4, prefix_caching=True)
    hashes = block_hashes(list(range(12)), 4)
    table = fill(pool, list(range(12)))
    pool.release(table)
    for num_left in (2, 1, 0):
        assert pool.reserve(1) is not None
        assert find_all(pool, hashes) == table[:num_left]


def test_blocks_without_contents_are_taken_before_cached_ones() -> None:
    """Eviction starts only when no block without contents is free, however recently it was freed."""
    pool = BlockPool(2, 4, prefix_caching=True)
    pool.release(fill(pool, [1, 2, 3, 4]))
    pool.release(fill(pool, [9]))
    assert pool.reserve(1) is not None
    assert len(find_all(pool, block_hashes([1, 2, 3, 4], 4))) == 1


def test_equal_contents_are_published_once() -> None:
    """Two sequences that compute the same block at the same time keep a block each."""
    pool = BlockPool(4, 4, prefix_caching=True)
    first, second = fill(pool, [1, 2, 3, 4]), fill(pool, [1, 2, 3, 4])
    assert find_all(pool, block_hashes([1, 2, 3, 4], 4)) == first
    pool.check([first, second])


def test_no_block_is_found_without_prefix_caching() -> None:
    pool = BlockPool(4, 4, prefix_caching=False)
    fill(pool, [1, 2, 3, 4])
    assert find_all(pool, block_hashes([1, 2, 3, 4], 4)) == []


def test_usage_counts_held_blocks_only() -> None:
    """Idle cached blocks can be reserved at any time, so they are not in use."""
    pool = BlockPool(4, 4, prefix_caching=True)
    table = fill(pool, list(range(8)))
    assert pool.usage == 0.5
    pool.release(table)
    assert pool.usage == 0.0


def test_a_block_cannot_be_released_twice() -> None:
    pool = BlockPool(4, 4, prefix_caching=True)
    table = fill(pool, [1])
    pool.release(table)
    with pytest.raises(AssertionError, match="not held"):
        pool.release(table)


def test_check_finds_a_lost_block() -> None:
    """A held block that is in no table fails the check."""
    pool = BlockPool(4, 4, prefix_caching=True)
    fill(pool, [1])
    with pytest.raises(AssertionError, match="holders differ"):
        pool.check([])


def test_a_cleared_index_finds_nothing_and_keeps_held_blocks() -> None:
    pool = BlockPool(4, 2, prefix_caching=True)
    hashes = block_hashes([1, 2, 3, 4], 2)
    held = pool.reserve(2)
    assert held is not None
    for block, block_hash in zip(held, hashes, strict=True):
        pool.publish(block, block_hash)
    pool.clear_index()
    pool.check([held])
    assert find_all(pool, hashes) == []
    pool.publish(held[0], hashes[0])  # its holder may publish it again
    assert find_all(pool, hashes) == held[:1]
    pool.release(held)
    pool.check([])


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 1), (1, 0)])
def test_a_pool_without_room_for_a_token_is_rejected(num_blocks: int, block_size: int) -> None:
    assert BlockPool(1, 1, prefix_caching=True).num_free_blocks == 1
    with pytest.raises(ValueError, match="at least one block of at least one token"):
        BlockPool(num_blocks, block_size, prefix_caching=True)


def test_salt_and_adapter_give_different_roots() -> None:
    """Each pair has its own root hash. Without an adapter it is the one that the gateway computes."""
    roots = {root_hash(salt, adapter) for salt in ("", "a", "b") for adapter in ("", "a", "b")}
    assert len(roots) == 9
    assert root_hash("a", "").hex().startswith("63b6dbc95fd7142b")
    assert root_hash("a", "b").hex().startswith("bbb2e27c0d54cbe7")


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(0, 30), st.integers(1, 5))
def test_extend_hashes_adds_hashes_of_new_full_blocks(
    tokens: list[int], num_first: int, block_size: int
) -> None:
    """Existing hashes are kept, and only full blocks get one."""
    hashes: list[bytes] = []
    for text in (tokens[:num_first], tokens, tokens):
        extend_hashes(hashes, text, block_size)
        assert hashes == block_hashes(text, block_size)
        assert len(hashes) == len(text) // block_size


def test_all_free_blocks_can_be_reserved_and_no_more() -> None:
    pool = BlockPool(3, 4, prefix_caching=True)
    assert pool.reserve(4) is None
    assert pool.reserve(3) == [0, 1, 2]
    assert (pool.num_free_blocks, pool.usage) == (0, 1.0)
    assert pool.reserve(1) is None
    assert pool.reserve(0) == []


def test_a_matched_idle_block_counts_as_a_free_block() -> None:
    pool = BlockPool(3, 4, prefix_caching=True)
    table = fill(pool, list(range(4)))
    pool.release(table)
    assert pool.reserve(3, table) is None
    assert pool.reserve(2, table) == [0, 1, 2]
    pool.check([[0, 1, 2]])


def test_evicted_blocks_are_reported_once_and_in_order() -> None:
    pool = BlockPool(3, 4, prefix_caching=True)
    hashes = block_hashes(list(range(12)), 4)
    pool.release(fill(pool, list(range(12))))
    assert pool.take_evicted() == []
    assert pool.reserve(2) == [2, 1]
    assert pool.take_evicted() == [(2, hashes[2]), (1, hashes[1])]
    assert pool.take_evicted() == []


def test_an_unpublished_block_is_not_found_and_is_reserved_first() -> None:
    """A held block stays held, and an unknown hash has no effect."""
    pool = BlockPool(4, 4, prefix_caching=True)
    table, hashes = fill(pool, list(range(16))), block_hashes(list(range(16)), 4)
    pool.release(table[:3])
    pool.unpublish(hashes[1])
    pool.unpublish(hashes[3])
    pool.unpublish(b"unknown")
    pool.check([table[3:]])
    assert find_all(pool, hashes) == [table[0], table[2]]
    assert pool.reserve(2) == [table[1], table[2]]
    assert pool.take_evicted() == [(table[2], hashes[2])]
    pool.release(table[3:])
    assert pool.reserve(1) == table[3:], "without contents, so before the last that has some"


def test_a_published_block_keeps_its_first_hash() -> None:
    pool = BlockPool(1, 4, prefix_caching=True)
    table = fill(pool, [1, 2, 3, 4])
    pool.publish(table[0], b"other")
    assert pool.find(b"other") is None
    pool.check([table])


def test_a_free_block_cannot_be_published() -> None:
    with pytest.raises(AssertionError, match="not held"):
        BlockPool(1, 4, prefix_caching=True).publish(0, b"hash")
