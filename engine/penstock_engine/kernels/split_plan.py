# mypy: allow-incomplete-defs
"""Splits the keys of long sequences over several programs of paged attention (Triton).

The lengths stay on the device: the host fixes the number of work items, and a kernel fills them in, so
that a CUDA graph can replay both. The layers of a step share a plan.
"""

import torch

from penstock_engine.kernels.attention_sizes import (
    ITEM_SIZE,
    max_extra_splits,
    max_query_blocks,
    min_split_blocks,
)
from penstock_engine.kernels.attention_tile import Tile
from penstock_engine.kernels.paged_batch import PagedBatch, SplitPlan
from penstock_engine.kernels.runtime import jit, loop_bound, multiprocessors, tl

SCAN = 1024  # sequences, or work items, that a program handles at once


def split_plan(
    batch: PagedBatch, num_tokens: int, tile: Tile, *, group: int, num_kv_heads: int, window: int
) -> SplitPlan:
    """The plan of a batch, computed once for all layers with these arguments.

    num_tokens: new tokens of the batch. group: query heads per KV head.

    Let a query block see v blocks of keys, and let L = max(min_split_blocks, ceil(sum (v - 1) / num_extra))
    over all query blocks. Each has ceil(v / L) = 1 + floor((v - 1) / L) splits, or one if v is 0. So all have
    at most sum (v - 1) / L <= num_extra splits besides the first ones, and the items suffice. For v the
    kernel takes the most that any query block of the sequence may see. So it wastes items of the first
    blocks of a prompt, but needs no loop over the query blocks of the other sequences.
    """
    block_queries = tile.block_rows // group
    min_blocks = min_split_blocks(tile.block_rows, tile.block_keys)
    key = (window, block_queries, tile.block_keys, min_blocks, num_kv_heads, num_tokens)
    if key not in batch.plans:
        batch.plans[key] = _compute_plan(batch, *key)
    return batch.plans[key]


def _compute_plan(
    batch: PagedBatch,
    window: int,
    block_queries: int,
    block_keys: int,
    min_blocks: int,
    num_kv_heads: int,
    num_tokens: int,
) -> SplitPlan:
    num_seqs, device = len(batch.lengths), batch.lengths.device
    num_blocks = max_query_blocks(num_tokens, num_seqs, block_queries)
    num_visible = batch.max_length
    if window:
        num_visible = min(num_visible, window - 1 + min(batch.max_queries, block_queries))
    num_extra = max_extra_splits(
        num_query_blocks=num_blocks,
        num_key_blocks=-(-num_visible // block_keys),
        min_blocks=min_blocks,
        num_kv_heads=num_kv_heads,
        num_multiprocessors=multiprocessors(device),
    )
    items = torch.empty(num_extra + num_blocks, ITEM_SIZE, dtype=torch.int32, device=device)
    _split_plan_kernel[(num_seqs + 1,)](
        batch.query_starts,
        batch.lengths,
        items,
        num_seqs,
        num_blocks,
        num_extra,
        BLOCK_QUERIES=block_queries,
        BLOCK_KEYS=block_keys,
        WINDOW=window,
        MIN_BLOCKS=min_blocks,
        ITEM_SIZE=ITEM_SIZE,
        SCAN=SCAN,
    )
    return SplitPlan(items, num_extra)


@jit(varying=("query_starts", "lengths", "num_seqs", "num_blocks", "num_extra"))
def _split_plan_kernel(
    query_starts,
    lengths,
    items,
    num_seqs,
    num_blocks,
    num_extra,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    MIN_BLOCKS: tl.constexpr,
    ITEM_SIZE: tl.constexpr,
    SCAN: tl.constexpr,
):
    """Writes the items of one sequence. The last program marks the unused items."""
    own = tl.program_id(0)
    index = tl.arange(0, SCAN)
    split_blocks = _longest_split(
        query_starts, lengths, num_seqs, num_extra,
        BLOCK_QUERIES, BLOCK_KEYS, WINDOW, MIN_BLOCKS, SCAN,
    )  # fmt: skip
    blocks_before, first_extra = _count_before(
        query_starts, lengths, own, split_blocks, BLOCK_QUERIES, BLOCK_KEYS, WINDOW, SCAN
    )
    first_item = num_extra + blocks_before
    if own == num_seqs:
        _mark_unused(items, first_extra, num_extra, ITEM_SIZE, SCAN)
        _mark_unused(items, first_item, num_extra + num_blocks, ITEM_SIZE, SCAN)
        return

    first_token, count, length = _load_sequence(query_starts, lengths, own, own < num_seqs)
    blocks, most = _extent(count, length, BLOCK_QUERIES, BLOCK_KEYS, WINDOW)
    extra = tl.maximum(most - 1, 0) // split_blocks  # of each query block, at most
    for start in range(0, loop_bound(blocks * (extra + 1)), SCAN):
        block = (start + index) // (extra + 1)
        split = (start + index) % (extra + 1)
        first_query = block * BLOCK_QUERIES
        queries = tl.minimum(count - first_query, BLOCK_QUERIES)
        position = length - count + first_query
        splits, first_key, last_key = _key_range(
            position, queries, split, split_blocks, BLOCK_KEYS, WINDOW
        )
        block_extra = first_extra + block * extra
        place = tl.where(split == 0, first_item + block, block_extra + split - 1)
        first_slot = tl.where(splits > 1, num_extra + block_extra, -1)
        slot = tl.where(split == 0, first_slot, place)
        sequence = tl.where(split < splits, own, -1)
        merged = tl.where(split == 1, splits, 0)
        item, mask = items + place * ITEM_SIZE, block < blocks
        _store_item(
            item, mask, sequence, first_token + first_query, queries, position, first_key, last_key,
            slot, merged,
        )  # fmt: skip


@jit
def _store_item(
    item, mask, sequence, first_token, queries, position, first_key, last_key, slot, merged
):
    """Stores the numbers of work items, as SplitPlan lists them."""
    tl.store(item, sequence, mask=mask)
    tl.store(item + 1, first_token, mask=mask)
    tl.store(item + 2, queries, mask=mask)
    tl.store(item + 3, position, mask=mask)
    tl.store(item + 4, first_key, mask=mask)
    tl.store(item + 5, last_key, mask=mask)
    tl.store(item + 6, slot, mask=mask)
    tl.store(item + 7, merged, mask=mask)


@jit
def _key_range(
    position, queries, split, split_blocks, BLOCK_KEYS: tl.constexpr, WINDOW: tl.constexpr
):
    """The number of splits of query blocks, and the range of keys of one of them.

    position, queries: of the first token of a query block, and its number of tokens. Splits are equal
    parts in whole blocks of keys, of which the last may be shorter.
    """
    end = tl.maximum(position + queries, 0)
    begin = end * 0
    if WINDOW > 0:
        begin = tl.maximum(position - WINDOW + 1, 0)
    visible = tl.cdiv(end - begin, BLOCK_KEYS)
    splits = 1 + tl.maximum(visible - 1, 0) // split_blocks
    split_keys = tl.cdiv(visible, splits) * BLOCK_KEYS
    first_key = begin + split * split_keys
    return splits, first_key, tl.minimum(first_key + split_keys, end)


@jit
def _longest_split(
    query_starts,
    lengths,
    num_seqs,
    num_extra,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    MIN_BLOCKS: tl.constexpr,
    SCAN: tl.constexpr,
):
    """Blocks of keys of the longest split; without extra items, a number that no sequence has."""
    total = tl.zeros([SCAN], tl.int64)
    for start in range(0, loop_bound(num_seqs), SCAN):
        sequence = start + tl.arange(0, SCAN)
        _, count, length = _load_sequence(query_starts, lengths, sequence, sequence < num_seqs)
        blocks, most = _extent(count, length, BLOCK_QUERIES, BLOCK_KEYS, WINDOW)
        total += blocks.to(tl.int64) * tl.maximum(most - 1, 0)
    wanted = tl.cdiv(tl.sum(total, 0), tl.maximum(num_extra, 1))
    return tl.where(num_extra > 0, tl.maximum(wanted, MIN_BLOCKS), 0x7FFFFFFF).to(tl.int32)


@jit
def _count_before(
    query_starts,
    lengths,
    end,
    split_blocks,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    SCAN: tl.constexpr,
):
    """The numbers of query blocks and of extra items of the sequences before `end`."""
    num_blocks = tl.zeros([SCAN], tl.int32)
    num_extra = tl.zeros([SCAN], tl.int32)
    for start in range(0, loop_bound(end), SCAN):
        sequence = start + tl.arange(0, SCAN)
        _, count, length = _load_sequence(query_starts, lengths, sequence, sequence < end)
        blocks, most = _extent(count, length, BLOCK_QUERIES, BLOCK_KEYS, WINDOW)
        num_blocks += blocks
        num_extra += blocks * (tl.maximum(most - 1, 0) // split_blocks)
    return tl.sum(num_blocks, 0), tl.sum(num_extra, 0)


@jit
def _load_sequence(query_starts, lengths, sequence, mask):
    """The first new token of sequences, their numbers of new tokens, and their lengths."""
    first_token = sequence
    end = sequence + tl.where(mask, 1, 0)
    if query_starts is not None:
        first_token = tl.load(query_starts + sequence, mask=mask, other=0)
        end = tl.load(query_starts + sequence + 1, mask=mask, other=0)
    return first_token, end - first_token, tl.load(lengths + sequence, mask=mask, other=0)


@jit
def _extent(
    count, length, BLOCK_QUERIES: tl.constexpr, BLOCK_KEYS: tl.constexpr, WINDOW: tl.constexpr
):
    """The number of query blocks of sequences, and the most blocks of keys that one of them may see."""
    visible = length
    if WINDOW > 0:
        visible = tl.minimum(length, WINDOW - 1 + tl.minimum(count, BLOCK_QUERIES))
    return tl.cdiv(count, BLOCK_QUERIES), tl.cdiv(visible, BLOCK_KEYS)


@jit
def _mark_unused(items, first, end, ITEM_SIZE: tl.constexpr, SCAN: tl.constexpr):
    """Marks the items [first, end) as unused."""
    for start in range(loop_bound(first), loop_bound(end), SCAN):
        item = start + tl.arange(0, SCAN)
        tl.store(items + item * ITEM_SIZE, -1, mask=item < end)
