# mypy: allow-incomplete-defs
"""Rotary position embedding in place: rotates each pair (i, i + rotary_dim / 2) of a head."""

import torch

from penstock_engine.kernels.runtime import jit, next_power_of_2, tl


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Apply rotary position embedding to q and k in place (Triton), computed in float32.

    q: [tokens, heads, head_dim], k: [tokens, kv_heads, head_dim]. cos, sin: [tokens, rotary_dim / 2] of
    the angles, float32 or the dtype of q. Row strides may be larger than dense. Heads must be dense: a
    part of wider heads has to be copied first. Dimensions from rotary_dim on do not change.
    """
    num_tokens, num_heads, head_dim = q.shape
    half = cos.shape[1]
    assert q.stride()[1:] == k.stride()[1:] == (head_dim, 1)
    assert cos.stride() == sin.stride() == (cos.stride(0), 1)
    assert 2 * half <= head_dim
    _rope_kernel[(num_tokens,)](
        q,
        k,
        cos,
        sin,
        q.stride(0),
        k.stride(0),
        cos.stride(0),
        NUM_HEADS=num_heads,
        HEADS_PAD=next_power_of_2(num_heads),
        NUM_KV_HEADS=k.shape[1],
        KV_HEADS_PAD=next_power_of_2(k.shape[1]),
        HEAD_DIM=head_dim,
        HALF=half,
        HALF_PAD=next_power_of_2(half),
    )


@jit
def _rope_kernel(
    q,
    k,
    cos,
    sin,
    q_stride,
    k_stride,
    angle_stride,
    NUM_HEADS: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    KV_HEADS_PAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    HALF_PAD: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    pair = tl.arange(0, HALF_PAD)
    c = tl.load(cos + token * angle_stride + pair, mask=pair < HALF, other=0.0).to(tl.float32)
    s = tl.load(sin + token * angle_stride + pair, mask=pair < HALF, other=0.0).to(tl.float32)
    _rotate_pairs(q + token * q_stride, c, s, NUM_HEADS, HEADS_PAD, HEAD_DIM, HALF, HALF_PAD)
    _rotate_pairs(k + token * k_stride, c, s, NUM_KV_HEADS, KV_HEADS_PAD, HEAD_DIM, HALF, HALF_PAD)


@jit
def _rotate_pairs(
    x,
    c,
    s,
    NUM_HEADS: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    HALF_PAD: tl.constexpr,
):
    head = tl.arange(0, HEADS_PAD)
    pair = tl.arange(0, HALF_PAD)
    mask = (head < NUM_HEADS)[:, None] & (pair < HALF)[None, :]
    first_at = x + head[:, None] * HEAD_DIM + pair[None, :]
    first = tl.load(first_at, mask=mask, other=0.0)
    second = tl.load(first_at + HALF, mask=mask, other=0.0).to(tl.float32)
    dtype = first.dtype
    first = first.to(tl.float32)
    tl.store(first_at, (first * c[None, :] - second * s[None, :]).to(dtype), mask=mask)
    tl.store(first_at + HALF, (second * c[None, :] + first * s[None, :]).to(dtype), mask=mask)
