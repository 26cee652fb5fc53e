"""Tests of the host tier: which contents it keeps, pins and evicts."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.core.kv_cache.host_tier import HostTier

A, B, C, D = b"a", b"b", b"c", b"d"


def filled(*hashes: bytes) -> HostTier:
    """Returns a tier that is full with these hashes, the least recently used first."""
    tier = HostTier(len(hashes))
    assert [tier.keep(h) for h in hashes] == list(range(len(hashes)))
    return tier


def kept(tier: HostTier) -> set[bytes]:
    return {h for h in (A, B, C, D) if tier.find(h) is not None}


def test_slots_are_filled_in_order_and_then_the_oldest_is_evicted() -> None:
    tier = filled(A, B, C)
    assert (tier.num_blocks, [tier.find(h) for h in (A, B, C, D)]) == (3, [0, 1, 2, None])
    assert tier.keep(D) == 0
    assert (tier.num_blocks, kept(tier)) == (3, {B, C, D})
    tier.check(3)


@pytest.mark.parametrize("use", [HostTier.refresh, HostTier.pin])
def test_a_used_entry_is_not_the_oldest(use: Callable[[HostTier, bytes], object]) -> None:
    tier = filled(A, B, C)
    use(tier, A)
    tier.unpin()
    assert tier.keep(D) == 1
    assert kept(tier) == {A, C, D}


def test_pinned_entries_are_not_evicted() -> None:
    tier = filled(A, B)
    tier.pin(A)
    tier.pin(B)
    assert tier.keep(C) is None
    assert kept(tier) == {A, B}
    tier.unpin()
    assert tier.keep(C) == 0
    assert kept(tier) == {B, C}


def test_refresh_returns_whether_the_entry_exists() -> None:
    tier = filled(A)
    assert [tier.refresh(h) for h in (A, B)] == [True, False]


def test_a_dropped_entry_frees_its_slot_and_its_pin() -> None:
    tier = filled(A, B)
    tier.pin(A)
    tier.drop(A)
    tier.drop(C)
    tier.check(2)
    assert (tier.num_blocks, kept(tier)) == (1, {B})
    assert tier.keep(A) == 0
    assert tier.keep(C) == 1, "the oldest is evicted, because none is pinned"
    assert tier.keep(D) == 0


def test_clear_empties_the_tier() -> None:
    tier = filled(A, B)
    tier.clear()
    tier.check(2)
    assert (tier.num_blocks, kept(tier)) == (0, set())
    assert {tier.keep(C), tier.keep(D)} == {0, 1}


def test_a_tier_without_slots_keeps_nothing() -> None:
    assert HostTier(0).keep(A) is None


@given(st.lists(st.tuples(st.sampled_from("kprdu"), st.sampled_from([A, B, C, D]))))
def test_no_slot_is_lost_or_used_twice(moves: list[tuple[str, bytes]]) -> None:
    tier = HostTier(2)
    for move, block_hash in moves:
        if move == "k" and tier.find(block_hash) is None:
            tier.keep(block_hash)
        elif move == "p" and tier.find(block_hash) is not None:
            tier.pin(block_hash)
        elif move == "r":
            tier.refresh(block_hash)
        elif move == "d":
            tier.drop(block_hash)
        elif move == "u":
            tier.unpin()
        tier.check(2)
