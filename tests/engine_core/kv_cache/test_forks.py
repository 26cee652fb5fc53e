"""Tests of forked sequences, which share the blocks of their common prompt."""

import pytest

from penstock_engine.core.kv_cache.blocks import BlockPool
from penstock_engine.core.kv_cache.cache import Admission, KVCache
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import BlockCopies

SIZE = 4
PROMPT = list(range(21))  # five full blocks, and a token


def sequence(name: str, prompt: list[int] = PROMPT) -> Sequence:
    return Sequence(name, prompt, SamplingParams(max_tokens=9), frozenset(), 0.0)


@pytest.mark.parametrize("num_prompt_tokens", [1, 2, 4, 5, 6, 8, 9, 10])
def test_a_fork_shares_full_blocks_and_copies_a_partial_one(num_prompt_tokens: int) -> None:
    """A fork reuses all of the prompt but the last token, whose logits it needs."""
    cache = KVCache(BlockPool(20, SIZE, prefix_caching=False))
    parent, fork = (sequence(name, PROMPT[:num_prompt_tokens]) for name in "pf")
    assert cache.admit(parent) is not None
    admission = cache.fork(fork, parent)
    num_reused = num_prompt_tokens - 1
    assert admission == Admission(num_reused, 0)
    num_full = num_reused // SIZE
    assert fork.block_table[:num_full] == parent.block_table[:num_full]
    assert set(fork.block_table[num_full:]).isdisjoint(parent.block_table)
    assert len(fork.block_table) == -(-num_prompt_tokens // SIZE)
    has_partial = num_reused % SIZE > 0
    copied = ((parent.block_table[num_full], fork.block_table[num_full]),) if has_partial else ()
    assert cache.take_block_copies() == BlockCopies(forks=copied)
    assert cache.take_block_copies() == BlockCopies()
    fork.num_computed_tokens = num_reused
    cache.check([parent, fork])


def test_a_fork_that_does_not_fit_changes_nothing() -> None:
    cache = KVCache(BlockPool(4, SIZE, prefix_caching=False))
    parent, fork = sequence("p", PROMPT[:11]), sequence("f", PROMPT[:11])
    other = sequence("o", [1])
    assert cache.admit(parent) is not None
    assert cache.admit(other) is not None
    assert cache.fork(fork, parent) is None
    assert fork.block_table == []
    assert cache.take_block_copies() == BlockCopies()
    cache.check([parent, other])


def test_a_late_fork_does_not_use_blocks_that_its_parent_released() -> None:
    """An early fork shares the blocks in its window. A late one is admitted like any sequence."""
    cache = KVCache(BlockPool(20, SIZE, prefix_caching=False), window_tokens=8)
    parent, early, late = sequence("p"), sequence("e"), sequence("l")
    assert cache.admit(parent) is not None
    parent.num_computed_tokens = len(PROMPT)
    cache.release_skipped(parent)
    admission = cache.fork(early, parent)
    assert admission is not None
    assert admission.num_tokens == 20
    assert early.held_blocks[:2] == parent.block_table[3:5]
    parent.num_computed_tokens = 40
    assert cache.grow(parent, 41)
    cache.release_skipped(parent)
    admission = cache.fork(late, parent)
    assert admission is not None
    assert admission.num_tokens == 0
    early.num_computed_tokens = 20
    cache.check([parent, early, late])
