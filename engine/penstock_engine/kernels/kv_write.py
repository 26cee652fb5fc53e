# mypy: allow-incomplete-defs
"""Writes the keys and values of new tokens to their slots of the paged cache.

A slot is a position of the pool: block * block_size + offset within the block.
"""

import torch

from penstock_engine.kernels.runtime import jit, next_power_of_2, tl


def kv_write_reference(
    keys: torch.Tensor, values: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor
) -> None:
    """keys, values: [tokens, kv_heads, head_dim]; slots: int64 [tokens], no slot twice.

    cache: [2, blocks, block_size, kv_heads, head_dim], changed in place.
    """
    pool = cache.view(2, -1, *keys.shape[1:])
    pool[0].index_copy_(0, slots, keys)
    pool[1].index_copy_(0, slots, values)


def kv_write(
    keys: torch.Tensor, values: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor
) -> None:
    """As kv_write_reference. The last two dimensions of keys and values must be dense."""
    num_tokens, num_kv_heads, head_dim = keys.shape
    assert cache.is_contiguous()
    assert keys.stride()[1:] == values.stride()[1:] == (head_dim, 1)
    row_size = num_kv_heads * head_dim
    _kernel[(num_tokens,)](
        keys,
        values,
        cache[0],
        cache[1],
        slots,
        keys.stride(0),
        values.stride(0),
        ROW_SIZE=row_size,
        ROW_PAD=next_power_of_2(row_size),
    )


@jit
def _kernel(
    keys,
    values,
    key_pool,
    value_pool,
    slots,
    key_stride,
    value_stride,
    ROW_SIZE: tl.constexpr,
    ROW_PAD: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    column = tl.arange(0, ROW_PAD)
    is_real = column < ROW_SIZE
    key = tl.load(keys + token * key_stride + column, mask=is_real)
    value = tl.load(values + token * value_stride + column, mask=is_real)
    tl.store(key_pool + slot * ROW_SIZE + column, key, mask=is_real)
    tl.store(value_pool + slot * ROW_SIZE + column, value, mask=is_real)
