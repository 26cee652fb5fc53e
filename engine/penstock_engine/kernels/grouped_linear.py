# mypy: allow-incomplete-defs
"""Grouped matrix product: each row is multiplied by the weights of its group (Triton).

Groups are experts of a mixture-of-experts layer, or LoRA adapters.
"""

import torch

from penstock_engine.kernels.group_rows import Groups
from penstock_engine.kernels.runtime import (
    dot,
    jit,
    loop_bound,
    next_power_of_2,
    splits_to_fill,
    tl,
)

BLOCK_INPUTS = 64
MIN_SPLIT_INPUTS = 512  # with shorter splits, adding the partial sums costs more than they save


def grouped_linear(
    x: torch.Tensor,
    weights: torch.Tensor,
    groups: Groups,
    *,
    rows_of_input: int = 1,
    factors: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Multiply each row of x by the weight matrix of its group (Triton). Sums are float32.

    x: [rows / rows_of_input, inputs]; row r of the result is computed from row r // rows_of_input.
    weights: [groups, outputs, inputs], of x's dtype or one to which x is rounded. factors: [rows],
    multiply the results. out: [rows, outputs], to which the results are added in place; None: a new
    tensor of out_dtype or x's dtype, in which rows of no group are 0. Row strides of x and out may be
    larger than dense.
    """
    num_groups, num_outputs, num_inputs = weights.shape
    assert x.shape == (groups.num_rows // rows_of_input, num_inputs)
    assert weights.is_contiguous()
    assert x.stride(1) == 1
    assert num_groups == groups.num_groups
    is_added = out is not None
    if out is None:
        shape = (groups.num_rows, num_outputs)
        out = torch.empty(shape, dtype=out_dtype or x.dtype, device=x.device)
    assert out.stride(1) == 1
    block_outputs = min(64, max(16, next_power_of_2(num_outputs)))
    num_blocks = len(groups.block_groups)
    num_columns = -(-num_outputs // block_outputs)
    # Split the inputs if there are few outputs for them, as in an adapter's A matrix.
    most_splits = 1 if is_added else num_inputs // MIN_SPLIT_INPUTS
    num_splits = splits_to_fill(num_blocks * num_columns, most_splits, x.device)
    block_inputs = BLOCK_INPUTS if weights.element_size() <= 2 else BLOCK_INPUTS // 2
    target = out
    if num_splits > 1:
        target = out.new_empty(num_splits, *out.shape, dtype=torch.float32)
    _grouped_linear_kernel[(num_blocks, num_columns, num_splits)](
        x,
        weights,
        groups.rows,
        groups.block_groups,
        factors,
        target,
        groups.num_rows,
        x.stride(0),
        target.stride(-2),
        -(-num_inputs // (num_splits * block_inputs)),
        NUM_INPUTS=num_inputs,
        NUM_OUTPUTS=num_outputs,
        ROWS_OF_INPUT=rows_of_input,
        BLOCK_ROWS=groups.block_rows,
        BLOCK_OUTPUTS=block_outputs,
        BLOCK_INPUTS=block_inputs,
        IS_ADDED=is_added,
    )
    return out if num_splits == 1 else out.copy_(target.sum(0))


def choose_block_rows(num_rows: int, num_groups: int) -> int:
    """Block size near the average number of rows of a group, because padding rows are computed too."""
    return min(64, max(16, next_power_of_2(num_rows // max(1, num_groups))))


@jit(varying=("num_rows", "split_blocks"))
def _grouped_linear_kernel(
    x,
    weights,
    rows,
    block_groups,
    factors,
    out,
    num_rows,
    x_stride,
    out_stride,
    split_blocks,
    NUM_INPUTS: tl.constexpr,
    NUM_OUTPUTS: tl.constexpr,
    ROWS_OF_INPUT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_INPUTS: tl.constexpr,
    IS_ADDED: tl.constexpr,
):
    # Locate: a block of one group's rows, a range of outputs, a part of the inputs.
    block = tl.program_id(0)
    split = tl.program_id(2)
    group = tl.load(block_groups + block)
    row = tl.load(rows + block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    is_row = row < num_rows
    is_output = output < NUM_OUTPUTS
    mask = is_row[:, None] & is_output[None, :]
    at = out + split.to(tl.int64) * num_rows * NUM_OUTPUTS
    at += row.to(tl.int64)[:, None] * out_stride + output[None, :]
    if group < 0:
        if not IS_ADDED:
            zeros = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float32)
            tl.store(at, zeros.to(out.dtype.element_ty), mask=mask)
        return

    # Multiply, block of inputs by block of inputs.
    first = split * split_blocks
    last = tl.minimum(first + split_blocks, tl.cdiv(NUM_INPUTS, BLOCK_INPUTS))
    x_row = x + (row // ROWS_OF_INPUT).to(tl.int64) * x_stride
    weight_row = weights + (group.to(tl.int64) * NUM_OUTPUTS + output) * NUM_INPUTS
    total = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float32)
    for block_of_inputs in range(loop_bound(first), loop_bound(last)):
        column = block_of_inputs * BLOCK_INPUTS + tl.arange(0, BLOCK_INPUTS)
        is_input = column < NUM_INPUTS
        a = tl.load(
            x_row[:, None] + column[None, :], mask=is_row[:, None] & is_input[None, :], other=0.0
        )
        b = tl.load(
            weight_row[:, None] + column[None, :],
            mask=is_output[:, None] & is_input[None, :],
            other=0.0,
        )
        total += dot(a.to(b.dtype), tl.trans(b))
    if factors is not None:
        total *= tl.load(factors + row, mask=is_row, other=0.0).to(tl.float32)[:, None]
    if IS_ADDED:
        total += tl.load(at, mask=mask, other=0.0).to(tl.float32)
    tl.store(at, total.to(out.dtype.element_ty), mask=mask)
