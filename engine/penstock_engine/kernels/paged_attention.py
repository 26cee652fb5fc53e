# mypy: allow-incomplete-defs
"""Causal attention of a mixed batch over paged keys and values: chunks, drafts, single tokens.

The query heads of a KV head share its keys, so they are rows of one product:

    program = (block of queries, KV head, split)
    block   = the BLOCK_ROWS // GROUP next tokens of one sequence, GROUP rows each
    split   = a range of key positions: few queries over long contexts are read by many programs
    reduce  = (token, query head)   partial sums of the splits, kept in float32, become one output

The grid is bounded by numbers of tokens and sequences, so that the lengths may stay on the device
and a CUDA graph may replay it: a block finds its sequence by itself, and those left over do nothing.
"""

from dataclasses import dataclass

import torch

from penstock_engine.kernels.kv_quant import as_loadable, decode, dequantize_kv
from penstock_engine.kernels.runtime import (
    dot,
    jit,
    loop_bound,
    next_power_of_2,
    sigmoid,
    splits_to_fill,
    tl,
)

LOG2_E = 1.4426950408889634  # exponentials are taken to base 2, as the hardware does
MIN_DOT = 16  # smallest side of a matrix product in Triton
MAX_SPLITS = 16


def paged_attention_reference(
    query: torch.Tensor,
    cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    *,
    window: int = 0,
    softcap: float = 0.0,
    kv_scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """query: [tokens, heads, head_dim]; the result has the same shape and dtype.

    cache: [2, blocks, block_size, kv_heads, head_dim], of the type of query, or int8 or
    float8_e4m3fn with kv_scales: float32 [2, blocks, block_size, kv_heads].
    block_tables: int32 [sequences, width], of which a sequence's first ceil(length / block_size)
    entries are read. query_starts: int32 [sequences + 1], rising from 0 to tokens. lengths: int32
    [sequences], of the cache, new tokens included: the last query stands at position length - 1.
    window: the last positions a query sees, its own included; 0: all. softcap: scores are bent
    into (-softcap, softcap) by tanh; 0: left as they are. A query at a position below 0 is
    padding, and its result 0. Computed in float32.
    """
    output = torch.zeros_like(query)
    num_kv_heads, head_dim = cache.shape[3:]
    bounds = query_starts.tolist()
    for row, length in enumerate(lengths.tolist()):
        tokens = slice(bounds[row], bounds[row + 1])
        num_queries = tokens.stop - tokens.start
        if length == 0 or num_queries == 0:
            continue
        blocks = block_tables[row, : -(-length // cache.shape[2])].long()
        pages = cache.view(torch.uint8)[:, blocks].view(cache.dtype).flatten(1, 2)[:, :length]
        if kv_scales is not None:
            pages = dequantize_kv(pages, kv_scales[:, blocks].flatten(1, 2)[:, :length])
        keys, values = pages.float()
        grouped = query[tokens].view(num_queries, num_kv_heads, -1, head_dim).float()
        scores = torch.einsum("qhgd,shd->hgqs", grouped, keys) * scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        key_at = torch.arange(length, device=query.device)
        query_at = key_at.new_tensor(range(length - num_queries, length))[:, None]
        is_hidden = (key_at > query_at) | ((key_at <= query_at - window) & (window > 0))
        weights = scores.masked_fill(is_hidden, -torch.inf).softmax(-1).nan_to_num(0.0)
        mixed = torch.einsum("hgqs,shd->qhgd", weights, values)
        output[tokens] = mixed.reshape(num_queries, -1, head_dim).to(query.dtype)
    return output


def paged_attention(
    query: torch.Tensor,
    cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    max_queries: int,
    max_length: int,
    *,
    window: int = 0,
    softcap: float = 0.0,
    kv_scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """As paged_attention_reference.

    max_queries: at least the most queries of a sequence, max_length: at least the largest of
    lengths, both known without a sync; they choose how to launch, not what is computed.
    """
    return launch(
        query, cache, block_tables, query_starts, lengths, scale, max_queries, max_length,
        window=window, softcap=softcap, kv_scales=kv_scales,
    )  # fmt: skip


def launch(
    query: torch.Tensor,
    cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor | None,
    lengths: torch.Tensor,
    scale: float,
    max_queries: int,
    max_length: int,
    *,
    window: int,
    softcap: float,
    kv_scales: torch.Tensor | None,
) -> torch.Tensor:
    """As paged_attention; query_starts: None stands for one query of each sequence."""
    num_tokens, num_heads, head_dim = query.shape
    block_size, num_kv_heads = cache.shape[2:4]
    assert cache.is_contiguous()
    assert query.stride()[1:] == (head_dim, 1)
    assert (kv_scales is None) == (cache.dtype == query.dtype)
    group = num_heads // num_kv_heads
    head_pad = max(MIN_DOT, next_power_of_2(head_dim))
    tile = choose_tile(
        group, max_queries, head_pad, query.element_size(), is_quantized=kv_scales is not None
    )
    num_seqs = len(lengths)
    num_blocks = num_seqs
    if query_starts is not None:
        num_blocks += num_tokens // (tile.block_rows // group)
    num_visible = min(max_length, window + max_queries) if window else max_length
    num_splits = choose_num_splits(num_blocks * num_kv_heads, num_visible, tile.block_keys)
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    partial = norms = output
    if num_splits > 1:
        shape = (num_tokens, num_heads, num_splits)
        partial = query.new_empty(*shape, head_dim, dtype=torch.float32)
        # Of each partial: the largest score, and the sum of exponentials relative to it.
        norms = query.new_empty(*shape, 2, dtype=torch.float32)
    keys, values = as_loadable(cache)
    _attend_kernel[(num_blocks, num_kv_heads, num_splits)](
        query,
        keys,
        values,
        None if kv_scales is None else kv_scales[0],
        None if kv_scales is None else kv_scales[1],
        block_tables,
        query_starts,
        lengths,
        partial,
        norms,
        scale * LOG2_E,
        num_seqs,
        query.stride(0),
        block_tables.stride(0),
        NUM_KV_HEADS=num_kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        HEAD_PAD=head_pad,
        BLOCK_SIZE=block_size,
        BLOCK_ROWS=tile.block_rows,
        BLOCK_KEYS=tile.block_keys,
        NUM_SPLITS=num_splits,
        WINDOW=window,
        SOFTCAP=softcap * LOG2_E,
        num_warps=tile.num_warps,
    )
    if num_splits > 1:
        _reduce_kernel[(num_tokens, num_heads)](
            partial,
            norms,
            output,
            NUM_HEADS=num_heads,
            HEAD_DIM=head_dim,
            HEAD_PAD=head_pad,
            NUM_SPLITS=num_splits,
        )
    return output


@dataclass(frozen=True, slots=True)
class Tile:
    """What a program holds at once: rows of queries, and keys."""

    block_rows: int
    block_keys: int
    num_warps: int


def choose_tile(
    group: int, max_queries: int, head_pad: int, element_size: int, *, is_quantized: bool
) -> Tile:
    """As many rows as the queries fill and registers hold: each row more is one read less."""
    is_wide = head_pad > 128
    fewest_rows = max(MIN_DOT, next_power_of_2(group))
    if element_size > 2:  # without tensor cores the product itself is the cost
        return Tile(fewest_rows, 16 if is_wide else 32, 4)
    most_rows = 64 if is_wide or is_quantized else 128
    rows = max(fewest_rows, min(next_power_of_2(max_queries * group), most_rows))
    num_warps = 8 if rows * head_pad > 64 * 128 else 4
    return Tile(rows, 32 if is_wide else 64, num_warps)


def choose_num_splits(num_programs: int, num_keys: int, block_keys: int) -> int:
    """A power of two: enough to fill the device, but no split shorter than two blocks of keys."""
    return splits_to_fill(num_programs, min(-(-num_keys // (2 * block_keys)), MAX_SPLITS))


@jit
def _attend_kernel(
    query,
    key_pool,
    value_pool,
    key_scales,
    value_scales,
    block_tables,
    query_starts,
    lengths,
    partial,
    norms,
    scale,
    num_seqs,
    query_stride,
    table_stride,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
):
    # Locate: the sequence, which of its queries, and where they stand in it.
    BLOCK_QUERIES: tl.constexpr = BLOCK_ROWS // GROUP
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    if query_starts is None:
        sequence = tl.program_id(0)
        first_token = sequence
        num_queries = 1
        first_query = 0
    else:
        block = tl.program_id(0)
        sequence = _find_sequence(query_starts, num_seqs, block, BLOCK_QUERIES)
        first_token = tl.load(query_starts + sequence)
        num_queries = tl.load(query_starts + sequence + 1) - first_token
        first_query = (block - first_token // BLOCK_QUERIES - sequence) * BLOCK_QUERIES
        if first_query >= num_queries:
            return
    length = tl.load(lengths + sequence)
    num_before = length - num_queries
    row = tl.arange(0, BLOCK_ROWS)
    query_index = first_query + row // GROUP
    head = kv_head * GROUP + row % GROUP
    query_at = num_before + query_index
    dim = tl.arange(0, HEAD_PAD)
    is_dim = dim < HEAD_DIM
    is_query = (row < BLOCK_QUERIES * GROUP) & (query_index < num_queries)

    # The keys that the block's queries see, and of these the range of this split.
    begin = 0
    if WINDOW > 0:
        begin = tl.maximum(num_before + first_query - WINDOW + 1, 0)
    end = num_before + tl.minimum(first_query + BLOCK_QUERIES, num_queries)
    split_keys = tl.cdiv(tl.cdiv(end - begin, NUM_SPLITS), BLOCK_KEYS) * BLOCK_KEYS
    first = begin + split * split_keys
    last = tl.minimum(first + split_keys, end)

    # Load the queries once; keys and values are read block by block.
    token = (first_token + query_index).to(tl.int64)
    query_offset = token * query_stride + head * HEAD_DIM
    is_element = is_query[:, None] & is_dim[None, :]
    q = tl.load(query + query_offset[:, None] + dim[None, :], mask=is_element, other=0.0)
    table = block_tables + sequence.to(tl.int64) * table_stride
    largest = tl.full([BLOCK_ROWS], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_ROWS], tl.float32)
    mixed = tl.zeros([BLOCK_ROWS, HEAD_PAD], tl.float32)
    for start in range(loop_bound(first), loop_bound(last), BLOCK_KEYS):
        key_at = start + tl.arange(0, BLOCK_KEYS)
        is_key = key_at < last
        page = tl.load(table + key_at // BLOCK_SIZE, mask=is_key, other=0).to(tl.int64)
        slot = (page * BLOCK_SIZE + key_at % BLOCK_SIZE) * NUM_KV_HEADS + kv_head
        offset = slot[:, None] * HEAD_DIM + dim[None, :]
        mask = is_key[:, None] & is_dim[None, :]
        k = decode(tl.load(key_pool + offset, mask=mask, other=0.0), q.dtype)
        v = decode(tl.load(value_pool + offset, mask=mask, other=0.0), q.dtype)

        # The scale of a token's key is a factor of its scores, that of its value of its weights.
        scores = dot(q, tl.trans(k)) * scale
        if key_scales is not None:
            scores *= tl.load(key_scales + slot, mask=is_key, other=0.0)[None, :]
        if SOFTCAP > 0:
            scores = SOFTCAP * (2.0 * sigmoid(scores * (2.0 / SOFTCAP)) - 1.0)  # tanh
        is_visible = is_key[None, :] & (key_at[None, :] <= query_at[:, None])
        if WINDOW > 0:
            is_visible &= key_at[None, :] > query_at[:, None] - WINDOW
        scores = tl.where(is_visible, scores, float("-inf"))

        # The running softmax: rescale what was summed by how far the maximum has moved. Of a row
        # that has seen no key yet the maximum is -inf, from which nothing can be subtracted.
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        decay = tl.exp2(largest - shift)
        weights = tl.exp2(scores - shift[:, None])
        total = total * decay + tl.sum(weights, 1)
        if value_scales is not None:
            weights *= tl.load(value_scales + slot, mask=is_key, other=0.0)[None, :]
        mixed = mixed * decay[:, None] + dot(weights.to(q.dtype), v)
        largest = new_largest

    # Store: the result, or what the reduction needs. A split without keys has a maximum of -inf.
    out_row = token * (NUM_KV_HEADS * GROUP) + head
    if NUM_SPLITS == 1:
        mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
        out_offset = out_row[:, None] * HEAD_DIM + dim[None, :]
        tl.store(partial + out_offset, mixed.to(partial.dtype.element_ty), mask=is_element)
    else:
        out_row = out_row * NUM_SPLITS + split
        out_offset = out_row[:, None] * HEAD_DIM + dim[None, :]
        tl.store(partial + out_offset, mixed, mask=is_element)
        tl.store(norms + out_row * 2, largest, mask=is_query)
        tl.store(norms + out_row * 2 + 1, total, mask=is_query)


@jit
def _find_sequence(query_starts, num_seqs, block, BLOCK_QUERIES: tl.constexpr):
    """The last sequence whose first block is not behind `block`.

    Sequence i begins with block query_starts[i] // BLOCK_QUERIES + i: rounding down and adding one
    leaves each at least the blocks it needs.
    """
    low = num_seqs * 0
    high = num_seqs
    while low < high:
        middle = (low + high) // 2
        if tl.load(query_starts + middle) // BLOCK_QUERIES + middle <= block:
            low = middle + 1
        else:
            high = middle
    return low - 1


@jit
def _reduce_kernel(
    partial,
    norms,
    output,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * NUM_HEADS + tl.program_id(1)
    slot = row * NUM_SPLITS + tl.arange(0, NUM_SPLITS)
    dim = tl.arange(0, HEAD_PAD)
    is_dim = dim < HEAD_DIM
    largest = tl.load(norms + slot * 2)
    top = tl.max(largest, 0)
    weight = tl.exp2(largest - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(weight * tl.load(norms + slot * 2 + 1), 0)
    partial_at = partial + slot[:, None] * HEAD_DIM + dim[None, :]
    mixed = tl.load(partial_at, mask=is_dim[None, :], other=0.0)
    result = tl.sum(weight[:, None] * mixed, 0) / tl.where(total > 0, total, 1.0)
    tl.store(output + row * HEAD_DIM + dim, result.to(output.dtype.element_ty), mask=is_dim)
