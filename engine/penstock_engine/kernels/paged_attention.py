# mypy: allow-incomplete-defs
"""Causal paged attention for a mixed batch of prefill chunks, drafts and decodes (Triton).

The query heads of a KV head share its keys, so they are rows of one product:

    program = (block of queries, KV head, split)
    block   = the BLOCK_ROWS // GROUP next tokens of one sequence, GROUP rows each
    split   = a range of key positions, so that few queries over long contexts use many programs
    reduce  = (token, query head)   combines the splits' partial sums, kept in float32

The grid size depends on the numbers of tokens and sequences only. So the lengths can stay on the
device, and a CUDA graph can replay it: each program finds its sequence by itself, and surplus
programs do nothing.
"""

import torch

from penstock_engine.kernels.attention_tile import choose_num_splits, choose_tile, pad_head
from penstock_engine.kernels.kv_quant import loadable_view, to_float
from penstock_engine.kernels.paged_batch import PagedBatch
from penstock_engine.kernels.runtime import dot, jit, loop_bound, sigmoid, tl

LOG2_E = 1.4426950408889634  # exponentials are taken to base 2, as the hardware does


def paged_attention(
    query: torch.Tensor,
    cache: torch.Tensor,
    batch: PagedBatch,
    scale: float,
    *,
    window: int = 0,
    softcap: float = 0.0,
    kv_scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention of new tokens over the paged KV cache (Triton).

    query: [tokens, heads, head_dim]; the result has the same shape and dtype. cache: [2, blocks,
    block_size, kv_heads, head_dim] of the dtype of query, or int8 or float8_e4m3fn with kv_scales:
    float32 [2, blocks, block_size, kv_heads]. scale: multiplies the scores. window: sliding window,
    the query's own position included; 0: none. softcap: scores are limited to (-softcap, softcap) by
    tanh; 0: no limit. A query at a negative position is padding, and its result is 0.
    """
    num_tokens, num_heads, head_dim = query.shape
    block_size, num_kv_heads = cache.shape[2:4]
    assert cache.is_contiguous()
    assert query.stride()[1:] == (head_dim, 1)
    assert (kv_scales is None) == (cache.dtype == query.dtype)
    group = num_heads // num_kv_heads
    head_pad = pad_head(head_dim)
    tile = choose_tile(
        group, batch.max_queries, head_pad, query.element_size(), is_quantized=kv_scales is not None
    )
    num_blocks = len(batch.lengths)
    if batch.query_starts is not None:
        num_blocks += num_tokens // (tile.block_rows // group)
    num_visible = batch.max_length
    if window:
        num_visible = min(num_visible, window + batch.max_queries)
    num_splits = choose_num_splits(
        num_blocks * num_kv_heads, num_visible, tile.block_keys, query.device
    )
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    partial = norms = output
    if num_splits > 1:
        shape = (num_tokens, num_heads, num_splits)
        partial = query.new_empty(*shape, head_dim, dtype=torch.float32)
        # For each partial sum: the largest score, and the sum of exponentials relative to it.
        norms = query.new_empty(*shape, 2, dtype=torch.float32)
    keys, values = loadable_view(cache)
    _attend_kernel[(num_blocks, num_kv_heads, num_splits)](
        query,
        keys,
        values,
        None if kv_scales is None else kv_scales[0],
        None if kv_scales is None else kv_scales[1],
        batch.block_tables,
        batch.query_starts,
        batch.lengths,
        partial,
        norms,
        scale * LOG2_E,
        len(batch.lengths),
        query.stride(0),
        batch.block_tables.stride(0),
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
    # Find the sequence of this program, its queries, and their positions.
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

    # Find the keys that the queries attend to, and the range of this split.
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
        k = to_float(tl.load(key_pool + offset, mask=mask, other=0.0), q.dtype)
        v = to_float(tl.load(value_pool + offset, mask=mask, other=0.0), q.dtype)

        # The scale of a token's key multiplies its scores; the scale of its value, its weights.
        scores = dot(q, tl.trans(k)) * scale
        if key_scales is not None:
            scores *= tl.load(key_scales + slot, mask=is_key, other=0.0)[None, :]
        if SOFTCAP > 0:
            scores = SOFTCAP * (2.0 * sigmoid(scores * (2.0 / SOFTCAP)) - 1.0)  # tanh
        is_visible = is_key[None, :] & (key_at[None, :] <= query_at[:, None])
        if WINDOW > 0:
            is_visible &= key_at[None, :] > query_at[:, None] - WINDOW
        scores = tl.where(is_visible, scores, float("-inf"))

        # Online softmax: rescale the sums by the change of the maximum. A row that has attended to no
        # key yet has a maximum of -inf, which must not be subtracted.
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        decay = tl.exp2(largest - shift)
        weights = tl.exp2(scores - shift[:, None])
        total = total * decay + tl.sum(weights, 1)
        if value_scales is not None:
            weights *= tl.load(value_scales + slot, mask=is_key, other=0.0)[None, :]
        mixed = mixed * decay[:, None] + dot(weights.to(q.dtype), v)
        largest = new_largest

    # Store the result, or the partial sums. A split without keys has a maximum of -inf.
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
    """Index of the sequence to which a block of queries belongs, by binary search.

    Sequence i starts at block query_starts[i] // BLOCK_QUERIES + i. The addition of i compensates for
    rounding down, so that each sequence has at least the blocks it needs.
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
