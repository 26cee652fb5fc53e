# mypy: allow-incomplete-defs
"""Matrix product with 8-bit weights (int8 or float8), dequantized in the kernel."""

import math

import torch

from penstock_engine.kernels.kv_quant import loadable_view, to_float
from penstock_engine.kernels.runtime import (
    dot,
    jit,
    loop_bound,
    next_power_of_2,
    splits_to_fill,
    tl,
)

BLOCK_OUTPUTS = 64
# A group's number of inputs must be a multiple of this: the smallest side of a product in Triton.
GROUP_MULTIPLE = 16
MIN_SPLIT_INPUTS = 512  # with shorter splits, adding the partial sums costs more than they save


def int8_linear(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    group_size: int,
    *,
    zeros: torch.Tensor | None = None,
    factor: float = 1.0,
) -> torch.Tensor:
    """Multiply x: [rows, inputs] by 8-bit weights (Triton): [rows, outputs] of x's dtype, float32 sums.

    The row stride of x may be larger than dense. codes: int8 or float8_e4m3fn [outputs, inputs]. scales:
    floating [outputs, groups], one for each group_size inputs; the last group may be smaller. group_size:
    a multiple of GROUP_MULTIPLE, or at least the number of inputs. zeros: int16 [outputs, groups]. A
    weight is (code - zero) * scale * factor.
    """
    num_rows, num_inputs = x.shape
    num_outputs, num_groups = scales.shape
    assert codes.is_contiguous()
    assert scales.is_contiguous()
    assert zeros is None or zeros.is_contiguous()
    assert x.stride(1) == 1
    block_inputs = choose_block_inputs(group_size if num_groups > 1 else 0, x.element_size())
    block_rows = choose_block_rows(num_rows, x.element_size())
    grid = (-(-num_rows // block_rows), -(-num_outputs // BLOCK_OUTPUTS))
    num_splits = splits_to_fill(grid[0] * grid[1], num_inputs // MIN_SPLIT_INPUTS, x.device)
    output = x.new_empty(num_rows, num_outputs)
    target = output
    if num_splits > 1:
        target = x.new_empty(num_splits, num_rows, num_outputs, dtype=torch.float32)
    _int8_linear_kernel[(*grid, num_splits)](
        x,
        loadable_view(codes),
        scales,
        zeros,
        target,
        num_rows,
        factor,
        x.stride(0),
        -(-num_inputs // (num_splits * block_inputs)),
        NUM_INPUTS=num_inputs,
        NUM_OUTPUTS=num_outputs,
        NUM_GROUPS=num_groups,
        GROUP_BLOCKS=-(-group_size // block_inputs),
        BLOCK_ROWS=block_rows,
        BLOCK_OUTPUTS=BLOCK_OUTPUTS,
        BLOCK_INPUTS=block_inputs,
    )
    return output if num_splits == 1 else output.copy_(target.sum(0))


def choose_block_inputs(group_size: int, element_size: int) -> int:
    """Choose the inputs per iteration: a power of two that divides group_size; 0 stands for any."""
    block_inputs = math.gcd(group_size, 32 if element_size > 2 else 128)
    assert block_inputs >= GROUP_MULTIPLE
    return block_inputs


def choose_block_rows(num_rows: int, element_size: int) -> int:
    """Choose the rows per program: all rows if they are few, as each block reads all weights again."""
    return 16 if element_size > 2 else min(64, max(16, next_power_of_2(num_rows)))


@jit(varying=("num_rows", "split_blocks"))
def _int8_linear_kernel(
    x,
    codes,
    scales,
    zeros,
    out,
    num_rows,
    factor,
    x_stride,
    split_blocks,
    NUM_INPUTS: tl.constexpr,
    NUM_OUTPUTS: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
    GROUP_BLOCKS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_INPUTS: tl.constexpr,
):
    # Locate: a block of rows, a range of outputs, a part of the inputs.
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    split = tl.program_id(2)
    is_row = row < num_rows
    is_output = output < NUM_OUTPUTS
    first = split * split_blocks
    last = tl.minimum(first + split_blocks, tl.cdiv(NUM_INPUTS, BLOCK_INPUTS))

    # Multiply one block of inputs at a time. A code, and a code minus its zero, is exact in the dtype
    # of x. Scales are applied to the product.
    x_row = x + row.to(tl.int64)[:, None] * x_stride
    code_row = codes + output.to(tl.int64)[:, None] * NUM_INPUTS
    total = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float32)
    for block in range(loop_bound(first), loop_bound(last)):
        column = block * BLOCK_INPUTS + tl.arange(0, BLOCK_INPUTS)[None, :]
        is_input = column < NUM_INPUTS
        a = tl.load(x_row + column, mask=is_row[:, None] & is_input, other=0.0)
        code = tl.load(code_row + column, mask=is_output[:, None] & is_input, other=0.0)
        group = output * NUM_GROUPS + block // GROUP_BLOCKS
        if zeros is None:
            b = to_float(code, a.dtype)
        else:
            zero = tl.load(zeros + group, mask=is_output, other=0).to(tl.float32)
            b = (to_float(code, tl.float32) - zero[:, None]).to(a.dtype)
        part = dot(a, tl.trans(b))
        if NUM_GROUPS > 1:
            part *= tl.load(scales + group, mask=is_output, other=0.0).to(tl.float32)[None, :]
        total += part

    # Scale, and store.
    total *= factor
    if NUM_GROUPS == 1:
        total *= tl.load(scales + output, mask=is_output, other=0.0).to(tl.float32)[None, :]
    at = out + (split.to(tl.int64) * num_rows + row)[:, None] * NUM_OUTPUTS + output[None, :]
    mask = is_row[:, None] & is_output[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=mask)
