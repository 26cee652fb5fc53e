# mypy: allow-incomplete-defs
"""Writes keys and values of new tokens to the paged KV cache (Triton and reference).

A slot is a position in the cache: block * block_size + offset within the block.
"""

import torch

from penstock_engine.kernels.kv_quant import MAX_VALUE, encode_e4m3, encode_int8, quantize_kv
from penstock_engine.kernels.runtime import jit, next_power_of_2, tl


def kv_write_reference(
    keys: torch.Tensor,
    values: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    kv_scales: torch.Tensor | None = None,
) -> None:
    """Write keys and values to their slots of cache and kv_scales, in place.

    keys, values: [tokens, kv_heads, head_dim]. slots: int64 [tokens], no slot twice. cache: [2,
    blocks, block_size, kv_heads, head_dim] of the dtype of keys, or int8 or float8_e4m3fn with
    kv_scales: float32 [2, blocks, block_size, kv_heads].
    """
    for index, rows in enumerate((keys, values)):
        pool = cache[index].flatten(0, 1)
        if kv_scales is None:
            pool.index_copy_(0, slots, rows)
            continue
        quantized, scales = quantize_kv(rows, cache.dtype)
        pool.view(torch.uint8).index_copy_(0, slots, quantized.view(torch.uint8))
        kv_scales[index].flatten(0, 1).index_copy_(0, slots, scales)


def kv_write(
    keys: torch.Tensor,
    values: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    kv_scales: torch.Tensor | None = None,
) -> None:
    """Write keys and values to their slots (Triton); see kv_write_reference.

    Slots below 0, the padding of a CUDA graph, are skipped.

    A head of a token whose key or value is not finite gets NaN as its key and zeros as its value.
    paged_attention multiplies the values of masked keys by 0, which would keep a NaN; so a NaN must be
    in the key alone, and only rows that attend to the token become NaN. (With scales, the key's scale
    is NaN.)

    The last two dimensions of keys and values must be dense.
    """
    num_tokens, num_kv_heads, head_dim = keys.shape
    assert cache.is_contiguous()
    assert keys.stride()[1:] == values.stride()[1:] == (head_dim, 1)
    assert (kv_scales is None) == (cache.dtype == keys.dtype)
    assert kv_scales is None or kv_scales.is_contiguous()
    if cache.dtype == torch.float8_e4m3fn:
        cache = cache.view(torch.uint8)  # encode_e4m3 makes the bits, on any device
        largest = MAX_VALUE[torch.float8_e4m3fn]
    else:
        largest = MAX_VALUE.get(cache.dtype, 0.0)
    _kv_write_kernel[(num_tokens,)](
        keys,
        values,
        cache[0],
        cache[1],
        None if kv_scales is None else kv_scales[0],
        None if kv_scales is None else kv_scales[1],
        slots,
        keys.stride(0),
        values.stride(0),
        NUM_KV_HEADS=num_kv_heads,
        HEADS_PAD=next_power_of_2(num_kv_heads),
        HEAD_DIM=head_dim,
        HEAD_PAD=next_power_of_2(head_dim),
        MAX_VALUE=largest,
    )


@jit(varying=("slots",))
def _kv_write_kernel(
    keys,
    values,
    key_pool,
    value_pool,
    key_scales,
    value_scales,
    slots,
    key_stride,
    value_stride,
    NUM_KV_HEADS: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    MAX_VALUE: tl.constexpr,  # largest number of the cache's dtype; 0: no quantization
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    head = tl.arange(0, HEADS_PAD)
    dim = tl.arange(0, HEAD_PAD)
    is_head = head < NUM_KV_HEADS
    mask = is_head[:, None] & (dim < HEAD_DIM)[None, :]
    offset = head[:, None] * HEAD_DIM + dim[None, :]
    key = tl.load(keys + token * key_stride + offset, mask=mask, other=0.0).to(tl.float32)
    value = tl.load(values + token * value_stride + offset, mask=mask, other=0.0).to(tl.float32)
    is_number = (tl.abs(key) < float("inf")) & (tl.abs(value) < float("inf"))  # False for NaN
    is_broken = tl.max(tl.where(is_number, 0, 1), 1) > 0
    value = tl.where(is_broken[:, None], 0.0, value)
    if MAX_VALUE > 0:
        key, key_scale = _quantize(tl.where(is_broken[:, None], 0.0, key), MAX_VALUE)
        value, value_scale = _quantize(value, MAX_VALUE)
        key_scale = tl.where(is_broken, float("nan"), key_scale)
        tl.store(key_scales + slot * NUM_KV_HEADS + head, key_scale, mask=is_head)
        tl.store(value_scales + slot * NUM_KV_HEADS + head, value_scale, mask=is_head)
    else:
        key = tl.where(is_broken[:, None], float("nan"), key)
    row = slot * (NUM_KV_HEADS * HEAD_DIM) + offset
    tl.store(key_pool + row, key.to(key_pool.dtype.element_ty), mask=mask)
    tl.store(value_pool + row, value.to(value_pool.dtype.element_ty), mask=mask)


@jit
def _quantize(x, MAX_VALUE: tl.constexpr):
    """Quantize x: float32 [heads, dim] to int8 or bits of e4m3. Returns (values, scales [heads])."""
    scale = tl.maximum(tl.max(tl.abs(x), 1) * (1 / MAX_VALUE), 1e-30)
    steps = tl.div_rn(x, tl.broadcast_to(scale[:, None], x.shape))
    return encode_int8(steps) if MAX_VALUE == 127.0 else encode_e4m3(steps), scale
