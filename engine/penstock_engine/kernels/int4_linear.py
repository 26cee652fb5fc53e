# mypy: allow-incomplete-defs
"""Matrix product with 4-bit weights, dequantized in the kernel (Triton).

    weight[o, i] = (code[o, i] - 8) * scale[o, g] + offset[o, g]        code: 0 to 15

Weights are packed in blocks of output rows, one block for each program. For each input, a byte holds
the code of a row of the block's first half in its low 4 bits, and that of the row in the same place
of the second half in its high 4 bits.
"""

import torch

from penstock_engine.kernels.int8_linear import (
    MIN_SPLIT_INPUTS,
    choose_block_inputs,
    choose_block_rows,
)
from penstock_engine.kernels.runtime import dot, jit, loop_bound, splits_to_fill, tl


def int4_linear(
    x: torch.Tensor,
    packed: torch.Tensor,
    scales_and_offsets: torch.Tensor,
    num_outputs: int,
) -> torch.Tensor:
    """Multiply x: [rows, inputs] by 4-bit weights (Triton): [rows, num_outputs] of x's dtype, float32 sums.

    The row stride of x may be larger than dense. packed: uint8 [blocks, inputs, block_rows / 2].
    scales_and_offsets: floating [groups, blocks * block_rows, 2]; a group has inputs / groups inputs, a
    multiple of GROUP_MULTIPLE. Weight rows from num_outputs on are padding.
    """
    num_rows, num_inputs = x.shape
    num_blocks, _, half = packed.shape
    num_groups = len(scales_and_offsets)
    assert packed.is_contiguous()
    assert scales_and_offsets.is_contiguous()
    assert x.stride(1) == 1
    group_size = num_inputs // num_groups
    block_inputs = choose_block_inputs(group_size, x.element_size())
    block_rows = choose_block_rows(num_rows, x.element_size())
    grid = (-(-num_rows // block_rows), num_blocks)
    num_splits = splits_to_fill(grid[0] * grid[1], num_inputs // MIN_SPLIT_INPUTS, x.device)
    output = x.new_empty(num_rows, num_outputs)
    target = output
    if num_splits > 1:
        target = x.new_empty(num_splits, num_rows, num_outputs, dtype=torch.float32)
    _int4_linear_kernel[(*grid, num_splits)](
        x,
        packed,
        scales_and_offsets,
        target,
        num_rows,
        x.stride(0),
        -(-num_inputs // (num_splits * block_inputs)),
        NUM_INPUTS=num_inputs,
        NUM_OUTPUTS=num_outputs,
        NUM_PADDED=2 * half * num_blocks,
        GROUP_BLOCKS=group_size // block_inputs,
        BLOCK_ROWS=block_rows,
        HALF_OUTPUTS=half,
        BLOCK_INPUTS=block_inputs,
    )
    return output if num_splits == 1 else output.copy_(target.sum(0))


@jit(varying=("num_rows", "split_blocks"))
def _int4_linear_kernel(
    x,
    packed,
    scales_and_offsets,
    out,
    num_rows,
    x_stride,
    split_blocks,
    NUM_INPUTS: tl.constexpr,
    NUM_OUTPUTS: tl.constexpr,
    NUM_PADDED: tl.constexpr,
    GROUP_BLOCKS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    HALF_OUTPUTS: tl.constexpr,
    BLOCK_INPUTS: tl.constexpr,
):
    # Locate: a block of rows, a block of outputs in two halves, a part of the inputs.
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    half = tl.arange(0, HALF_OUTPUTS)
    output = tl.program_id(1) * (2 * HALF_OUTPUTS) + half
    split = tl.program_id(2)
    is_row = row < num_rows
    first = split * split_blocks
    last = tl.minimum(first + split_blocks, NUM_INPUTS // BLOCK_INPUTS)

    # Multiply one block of inputs at a time. A code minus 8 is exact in the dtype of x. Scales are
    # applied to the product, and offsets to the sum of x.
    x_row = x + row.to(tl.int64)[:, None] * x_stride
    packed_block = packed + tl.program_id(1).to(tl.int64) * (NUM_INPUTS * HALF_OUTPUTS)
    low_total = tl.zeros([BLOCK_ROWS, HALF_OUTPUTS], tl.float32)
    high_total = tl.zeros([BLOCK_ROWS, HALF_OUTPUTS], tl.float32)
    for block in range(loop_bound(first), loop_bound(last)):
        column = block * BLOCK_INPUTS + tl.arange(0, BLOCK_INPUTS)
        a = tl.load(x_row + column[None, :], mask=is_row[:, None], other=0.0)
        codes = tl.load(packed_block + column[:, None] * HALF_OUTPUTS + half[None, :])
        low = ((codes & 15).to(tl.float32) - 8.0).to(a.dtype)
        high = ((codes >> 4).to(tl.float32) - 8.0).to(a.dtype)
        factor = scales_and_offsets + 2 * ((block // GROUP_BLOCKS) * NUM_PADDED + output)
        x_sum = tl.sum(a.to(tl.float32), 1)
        low_total += _apply_scale(dot(a, low), x_sum, factor)
        high_total += _apply_scale(dot(a, high), x_sum, factor + 2 * HALF_OUTPUTS)

    _store(low_total, out, row, output, split, num_rows, NUM_OUTPUTS)
    _store(high_total, out, row, output + HALF_OUTPUTS, split, num_rows, NUM_OUTPUTS)


@jit
def _apply_scale(part, x_sum, factor):
    scale = tl.load(factor).to(tl.float32)
    offset = tl.load(factor + 1).to(tl.float32)
    return part * scale[None, :] + x_sum[:, None] * offset[None, :]


@jit
def _store(total, out, row, output, split, num_rows, NUM_OUTPUTS: tl.constexpr):
    is_output = output < NUM_OUTPUTS
    at = out + (split.to(tl.int64) * num_rows + row)[:, None] * NUM_OUTPUTS + output[None, :]
    mask = (row < num_rows)[:, None] & is_output[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=mask)
