# mypy: allow-incomplete-defs
"""Causal paged attention for a mixed batch of prefill chunks, drafts and decodes (Triton).

The query heads of a KV head share its keys, so they are rows of one product:

    program = (work item, KV head)
    item    = a query block and a range of its keys (split_plan.py)
    block   = the BLOCK_ROWS // GROUP next tokens of one sequence, GROUP rows each
    merge   = (query block of several splits, query head)   adds their partial sums, kept in float32

The grid size depends on the numbers of tokens and sequences only. So the lengths can stay on the
device, and a CUDA graph can replay it: surplus programs do nothing.
"""

import torch

from penstock_engine.kernels.attention_sizes import ITEM_SIZE
from penstock_engine.kernels.attention_tile import Tile, choose_tile, pad_head, shared_memory_kib
from penstock_engine.kernels.kv_quant import loadable_view, to_float
from penstock_engine.kernels.merge_splits import PartialSums, merge_splits
from penstock_engine.kernels.paged_batch import PagedBatch
from penstock_engine.kernels.runtime import dot, jit, loop_bound, sigmoid, tl
from penstock_engine.kernels.split_plan import split_plan

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
    out: torch.Tensor | None = None,
    tile: Tile | None = None,
) -> torch.Tensor:
    """Causal attention of new tokens over the paged KV cache (Triton).

    query: [tokens, heads, head_dim]; the result has the same shape and dtype. cache: [2, blocks,
    block_size, kv_heads, head_dim] of the dtype of query, or int8 or float8_e4m3fn with kv_scales:
    float32 [2, blocks, block_size, kv_heads]. scale: multiplies the scores. window: sliding window,
    the query's own position included; 0: none. softcap: scores are limited to (-softcap, softcap) by
    tanh; 0: no limit. out: a dense tensor for the result. tile: None: chosen by choose_tile. A query at a
    negative position is padding, and its result is 0.
    """
    num_tokens, num_heads, head_dim = query.shape
    block_size, num_kv_heads = cache.shape[2:4]
    assert cache.is_contiguous()
    assert query.stride()[1:] == (head_dim, 1)
    assert (kv_scales is None) == (cache.dtype == query.dtype)
    if out is None:
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    assert out.shape == query.shape
    assert out.is_contiguous()
    group = num_heads // num_kv_heads
    if tile is None:
        item_bytes = query.element_size(), cache.element_size()
        shared_kib = shared_memory_kib(query.device)
        tile = choose_tile(group, batch.max_queries, head_dim, *item_bytes, shared_kib)
    plan = split_plan(
        batch, num_tokens, tile, group=group, num_kv_heads=num_kv_heads, window=window
    )
    partial = PartialSums.of(plan, num_kv_heads, tile.block_rows, head_dim, query.device)
    keys, values = loadable_view(cache)
    _attend_kernel[(len(plan.items) * num_kv_heads,)](
        query,
        keys,
        values,
        None if kv_scales is None else kv_scales[0],
        None if kv_scales is None else kv_scales[1],
        batch.block_tables,
        plan.items,
        out,
        partial.sums,
        partial.norms,
        scale * LOG2_E,
        query.stride(0),
        batch.block_tables.stride(0),
        NUM_KV_HEADS=num_kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        HEAD_PAD=pad_head(head_dim),
        BLOCK_SIZE=block_size,
        BLOCK_ROWS=tile.block_rows,
        BLOCK_KEYS=tile.block_keys,
        WINDOW=window,
        SOFTCAP=softcap * LOG2_E,
        ITEM_SIZE=ITEM_SIZE,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    merge_splits(plan, partial, out, group=group, max_queries=batch.max_queries)
    return out


@jit(varying=("block_tables", "table_stride"))
def _attend_kernel(
    query,
    key_pool,
    value_pool,
    key_scales,
    value_scales,
    block_tables,
    items,
    output,
    partial,
    norms,
    scale,
    query_stride,
    table_stride,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    ITEM_SIZE: tl.constexpr,
):
    # The heads of an item are neighboring programs, because a token's heads lie side by side in the cache.
    kv_head = tl.program_id(0) % NUM_KV_HEADS
    item = items + tl.program_id(0) // NUM_KV_HEADS * ITEM_SIZE
    sequence = tl.load(item)
    if sequence < 0:
        return
    first_token = tl.load(item + 1)
    num_queries = tl.load(item + 2)
    position = tl.load(item + 3)
    first = tl.load(item + 4)
    last = tl.load(item + 5)
    slot = tl.load(item + 6)
    row = tl.arange(0, BLOCK_ROWS)
    query_index = row // GROUP
    head = kv_head * GROUP + row % GROUP
    query_at = position + query_index
    dim = tl.arange(0, HEAD_PAD)
    is_dim = dim < HEAD_DIM
    is_query = query_index < num_queries

    # Load the queries once; keys and values are read block by block.
    token = (first_token + query_index).to(tl.int64)
    query_offset = token * query_stride + head * HEAD_DIM
    is_element = is_query[:, None] & is_dim[None, :]
    q = tl.load(query + query_offset[:, None] + dim[None, :], mask=is_element, other=0.0)
    table = block_tables + sequence.to(tl.int64) * table_stride
    key = tl.arange(0, BLOCK_KEYS)
    page = tl.load(table + (first + key) // BLOCK_SIZE, mask=first + key < last, other=0)
    largest = tl.full([BLOCK_ROWS], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_ROWS], tl.float32)
    mixed = tl.zeros([BLOCK_ROWS, HEAD_PAD], tl.float32)
    for start in range(loop_bound(first), loop_bound(last), BLOCK_KEYS):
        key_at = start + key
        is_key = key_at < last
        slots = (page.to(tl.int64) * BLOCK_SIZE + key_at % BLOCK_SIZE) * NUM_KV_HEADS + kv_head
        offset = slots[:, None] * HEAD_DIM + dim[None, :]
        mask = is_key[:, None] & is_dim[None, :]
        k = to_float(tl.load(key_pool + offset, mask=mask, other=0.0), q.dtype)
        v = to_float(tl.load(value_pool + offset, mask=mask, other=0.0), q.dtype)
        # The pages of the next iteration are read here, so that its keys need not wait for them.
        next_at = key_at + BLOCK_KEYS
        page = tl.load(table + next_at // BLOCK_SIZE, mask=next_at < last, other=0)

        # The scale of a token's key multiplies its scores; the scale of its value, its weights.
        scores = dot(q, tl.trans(k)) * scale
        if key_scales is not None:
            scores *= tl.load(key_scales + slots, mask=is_key, other=0.0)[None, :]
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
            weights *= tl.load(value_scales + slots, mask=is_key, other=0.0)[None, :]
        mixed = mixed * decay[:, None] + dot(weights.to(q.dtype), v)
        largest = new_largest

    # Store the result, or the split's partial sums.
    if slot < 0:
        mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
        out_row = token * (NUM_KV_HEADS * GROUP) + head
        out_offset = out_row[:, None] * HEAD_DIM + dim[None, :]
        tl.store(output + out_offset, mixed.to(output.dtype.element_ty), mask=is_element)
    else:
        partial_row = (slot.to(tl.int64) * NUM_KV_HEADS + kv_head) * BLOCK_ROWS + row
        partial_offset = partial_row[:, None] * HEAD_DIM + dim[None, :]
        tl.store(partial + partial_offset, mixed, mask=is_element)
        tl.store(norms + partial_row * 2, largest, mask=is_query)
        tl.store(norms + partial_row * 2 + 1, total, mask=is_query)
