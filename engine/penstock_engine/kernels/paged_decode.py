# mypy: allow-incomplete-defs
"""Attention of one new token for each sequence over its paged keys and values.

Decoding reads the whole cache once and computes little, so the work is cut to read evenly:

    program = (sequence, KV head, split)   all query heads of a KV head share one read of its keys
    split   = a range of positions         long sequences are read by many programs at once
    reduce  = (sequence, query head)       partial sums, kept in float32, become one output
"""

import torch

from penstock_engine.kernels.runtime import dot, jit, loop_bound, next_power_of_2, tl

TILE = 32  # positions read at once; independent of the cache's block size
MIN_DOT = 16  # smallest side of a matrix product in Triton
MAX_SPLITS = 16
# About two programs for each of the 132 processors of an H100.
TARGET_PROGRAMS = 256


def paged_decode_reference(
    query: torch.Tensor,
    cache: torch.Tensor,
    block_tables: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """query: [sequences, heads, head_dim]; the result has the same shape and dtype.

    cache: [2, blocks, block_size, kv_heads, head_dim]. block_tables: int32 [sequences, width],
    of which a sequence's first ceil(length / block_size) entries are read. lengths: int32
    [sequences], each at least 1. Computed in float32.
    """
    num_kv_heads, head_dim = cache.shape[3:]
    output = torch.empty_like(query)
    for row, length in enumerate(lengths.tolist()):
        pages = cache[:, block_tables[row].long()].flatten(1, 2)[:, :length].float()
        grouped = query[row].view(num_kv_heads, -1, head_dim).float()
        scores = torch.einsum("hgd,shd->hgs", grouped, pages[0]) * scale
        mixed = torch.einsum("hgs,shd->hgd", scores.softmax(-1), pages[1])
        output[row] = mixed.reshape(-1, head_dim).to(query.dtype)
    return output


def paged_decode(
    query: torch.Tensor,
    cache: torch.Tensor,
    block_tables: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    max_length: int,
) -> torch.Tensor:
    """As paged_decode_reference. max_length: at least the largest of lengths, without a sync."""
    num_seqs, num_heads, head_dim = query.shape
    block_size, num_kv_heads = cache.shape[2:4]
    assert cache.is_contiguous()
    assert query.stride()[1:] == (head_dim, 1)
    num_splits = choose_num_splits(num_seqs * num_kv_heads, max_length)
    partial = query.new_empty(num_seqs, num_heads, num_splits, head_dim, dtype=torch.float32)
    # Of each partial: the largest score, and the sum of exponentials relative to it.
    norms = query.new_empty(2, num_seqs, num_heads, num_splits, dtype=torch.float32)
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    head_pad = max(MIN_DOT, next_power_of_2(head_dim))
    _split_kernel[(num_seqs, num_kv_heads, num_splits)](
        query,
        cache[0],
        cache[1],
        block_tables,
        lengths,
        partial,
        norms[0],
        norms[1],
        scale,
        query.stride(0),
        block_tables.stride(0),
        NUM_KV_HEADS=num_kv_heads,
        GROUP=num_heads // num_kv_heads,
        GROUP_PAD=max(MIN_DOT, next_power_of_2(num_heads // num_kv_heads)),
        HEAD_DIM=head_dim,
        HEAD_PAD=head_pad,
        BLOCK_SIZE=block_size,
        TILE=TILE,
        NUM_SPLITS=num_splits,
    )
    _reduce_kernel[(num_seqs, num_heads)](
        partial,
        norms[0],
        norms[1],
        output,
        NUM_HEADS=num_heads,
        HEAD_DIM=head_dim,
        HEAD_PAD=head_pad,
        NUM_SPLITS=num_splits,
    )
    return output


def choose_num_splits(num_programs: int, max_length: int) -> int:
    """A power of two: enough to fill the device, but no split shorter than two tiles."""
    wanted = -(-TARGET_PROGRAMS // num_programs)
    useful = -(-max_length // (2 * TILE))
    return next_power_of_2(max(1, min(wanted, useful, MAX_SPLITS)))


@jit
def _split_kernel(
    query,
    key_pool,
    value_pool,
    block_tables,
    lengths,
    partial,
    maxima,
    sums,
    scale,
    query_stride,
    table_stride,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
):
    # Locate: this split's positions, and the query heads that share this KV head.
    sequence = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(lengths + sequence)
    tiles_per_split = tl.cdiv(tl.cdiv(length, NUM_SPLITS), TILE)
    first = split * tiles_per_split * TILE
    last = tl.minimum(first + tiles_per_split * TILE, length)
    group = tl.arange(0, GROUP_PAD)
    dim = tl.arange(0, HEAD_PAD)
    is_head = group < GROUP
    is_dim = dim < HEAD_DIM
    head = kv_head * GROUP + group

    # Load the queries once; keys and values are read tile by tile.
    query_at = query + sequence * query_stride + head[:, None] * HEAD_DIM + dim[None, :]
    q = tl.load(query_at, mask=is_head[:, None] & is_dim[None, :], other=0.0)
    largest = tl.full([GROUP_PAD], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_PAD], tl.float32)
    mixed = tl.zeros([GROUP_PAD, HEAD_PAD], tl.float32)
    for start in range(loop_bound(first), loop_bound(last), TILE):
        position = start + tl.arange(0, TILE)
        is_real = position < last
        table_at = block_tables + sequence * table_stride + position // BLOCK_SIZE
        block = tl.load(table_at, mask=is_real, other=0).to(tl.int64)
        row = (block * BLOCK_SIZE + position % BLOCK_SIZE) * NUM_KV_HEADS + kv_head
        offset = row[:, None] * HEAD_DIM + dim[None, :]
        mask = is_real[:, None] & is_dim[None, :]
        k = tl.load(key_pool + offset, mask=mask, other=0.0)
        v = tl.load(value_pool + offset, mask=mask, other=0.0)

        # The running softmax: rescale what was summed by how far the maximum has moved.
        scores = dot(q, tl.trans(k)) * scale
        scores = tl.where(is_real[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        decay = tl.exp(largest - new_largest)
        weights = tl.exp(scores - new_largest[:, None])
        total = total * decay + tl.sum(weights, 1)
        mixed = mixed * decay[:, None]
        mixed += dot(weights.to(v.dtype), v)
        largest = new_largest

    # Store. A split without positions stores a maximum of -inf, which the reduction weighs as 0.
    slot = (sequence * (NUM_KV_HEADS * GROUP) + head) * NUM_SPLITS + split
    partial_at = partial + slot[:, None] * HEAD_DIM + dim[None, :]
    tl.store(partial_at, mixed, mask=is_head[:, None] & is_dim[None, :])
    tl.store(maxima + slot, largest, mask=is_head)
    tl.store(sums + slot, total, mask=is_head)


@jit
def _reduce_kernel(
    partial,
    maxima,
    sums,
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
    largest = tl.load(maxima + slot)
    weight = tl.exp(largest - tl.max(largest, 0))
    total = tl.sum(weight * tl.load(sums + slot), 0)
    partial_at = partial + slot[:, None] * HEAD_DIM + dim[None, :]
    mixed = tl.load(partial_at, mask=is_dim[None, :], other=0.0)
    result = tl.sum(weight[:, None] * mixed, 0) / total
    result = result.to(output.dtype.element_ty)
    tl.store(output + row * HEAD_DIM + dim, result, mask=is_dim)
