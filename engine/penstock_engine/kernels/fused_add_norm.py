# mypy: allow-incomplete-defs
"""Fused residual addition and RMSNorm in one pass over the rows (Triton)."""

import torch

from penstock_engine.kernels.runtime import jit, next_power_of_2, tl

BLOCK_ELEMENTS = 2048  # a program takes several rows if they are short, as the heads of a query


def fused_add_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    *,
    weight_offset: float = 0.0,
) -> torch.Tensor:
    """Fused residual addition and RMSNorm (Triton): torch_ops.add_norm, computed in float32.

    x: [rows, size] or [rows, heads, size]; its first stride may be larger than dense. residual: of
    x's shape, contiguous, updated in place to x + residual; None: only normalize. weight: [size].
    weight_offset: added to weight. Returns a new tensor of x's shape and dtype.
    """
    *_, inner, size = x.shape if x.dim() == 3 else (len(x), 1, x.shape[-1])
    assert x.stride()[1:] in ((1,), (size, 1))
    assert residual is None or residual.is_contiguous()
    output = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    num_rows = len(x) * inner
    size_pad = next_power_of_2(size)
    block_rows = max(1, BLOCK_ELEMENTS // size_pad)
    _add_norm_kernel[(-(-num_rows // block_rows),)](
        x,
        residual,
        weight,
        output,
        num_rows,
        eps,
        weight_offset,
        x.stride(0),
        INNER=inner,
        SIZE=size,
        SIZE_PAD=size_pad,
        BLOCK_ROWS=block_rows,
        num_warps=min(16, max(4, size_pad // 1024)),
    )
    return output


@jit(varying=("num_rows",))
def _add_norm_kernel(
    x,
    residual,
    weight,
    output,
    num_rows,
    eps,
    weight_offset,
    x_stride,
    INNER: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_PAD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, SIZE_PAD)
    is_column = column < SIZE
    mask = (row < num_rows)[:, None] & is_column[None, :]
    x_row = (row // INNER) * x_stride + (row % INNER) * SIZE
    values = tl.load(x + x_row[:, None] + column[None, :], mask=mask, other=0.0)
    offset = row[:, None] * SIZE + column[None, :]
    if residual is not None:
        added = tl.load(residual + offset, mask=mask, other=0.0).to(tl.float32)
        values = (values.to(tl.float32) + added).to(values.dtype)
        tl.store(residual + offset, values, mask=mask)
    values = values.to(tl.float32)
    scale = tl.load(weight + column, mask=is_column, other=0.0).to(tl.float32) + weight_offset
    inverse = tl.rsqrt(tl.sum(values * values, 1) / SIZE + eps)
    values = values * inverse[:, None] * scale[None, :]
    tl.store(output + offset, values.to(output.dtype.element_ty), mask=mask)
