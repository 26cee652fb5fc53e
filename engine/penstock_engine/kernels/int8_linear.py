# mypy: allow-incomplete-defs
"""A product with weights of eight bits, made wide again where they are multiplied.

The weights are int8 or float8 (e4m3), with one scale for each output.
"""

import torch
import torch.nn.functional as F

from penstock_engine.kernels.kv_quant import as_loadable, decode, quantize_kv
from penstock_engine.kernels.runtime import (
    dot,
    jit,
    loop_bound,
    next_power_of_2,
    splits_to_fill,
    tl,
)

BLOCK_OUTPUTS = 64
BLOCK_INPUTS = 128
MIN_SPLIT_INPUTS = 512  # below, adding up the parts costs more than they save


def quantize_int8(
    weight: torch.Tensor, dtype: torch.dtype = torch.int8
) -> tuple[torch.Tensor, torch.Tensor]:
    """weight: [outputs, inputs] -> dtype (int8 or float8_e4m3fn) of its shape, float32 [outputs]."""
    return quantize_kv(weight, dtype)


def int8_linear_reference(
    x: torch.Tensor,
    values: torch.Tensor,
    scales: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """x: [rows, inputs] -> [rows, outputs] of its type. Sums are float32.

    values: int8 or float8_e4m3fn [outputs, inputs]; scales: float32 [outputs]; bias: [outputs].
    """
    result = F.linear(x.float(), values.float()) * scales
    return (result if bias is None else result + bias.float()).to(x.dtype)


def int8_linear(
    x: torch.Tensor,
    values: torch.Tensor,
    scales: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """As int8_linear_reference. Rows of x may be cut out of wider ones."""
    num_rows, num_inputs = x.shape
    num_outputs = len(values)
    assert values.is_contiguous()
    assert x.stride(1) == 1
    block_rows = choose_block_rows(num_rows, x.element_size())
    grid = (-(-num_rows // block_rows), -(-num_outputs // BLOCK_OUTPUTS))
    num_splits = splits_to_fill(grid[0] * grid[1], num_inputs // MIN_SPLIT_INPUTS)
    output = x.new_empty(num_rows, num_outputs)
    target = output
    if num_splits > 1:
        target = x.new_empty(num_splits, num_rows, num_outputs, dtype=torch.float32)
    _int8_linear_kernel[(*grid, num_splits)](
        x,
        as_loadable(values),
        scales,
        bias,
        target,
        num_rows,
        x.stride(0),
        NUM_INPUTS=num_inputs,
        NUM_OUTPUTS=num_outputs,
        BLOCK_ROWS=block_rows,
        BLOCK_OUTPUTS=BLOCK_OUTPUTS,
        BLOCK_INPUTS=BLOCK_INPUTS,
        NUM_SPLITS=num_splits,
    )
    return output if num_splits == 1 else output.copy_(target.sum(0))


def choose_block_rows(num_rows: int, element_size: int) -> int:
    """All rows if they are few: each block of rows reads all weights again."""
    return 16 if element_size > 2 else min(64, max(16, next_power_of_2(num_rows)))


@jit
def _int8_linear_kernel(
    x,
    values,
    scales,
    bias,
    out,
    num_rows,
    x_stride,
    NUM_INPUTS: tl.constexpr,
    NUM_OUTPUTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_INPUTS: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
):
    # Locate: a block of rows, a range of outputs, a part of the inputs.
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    split = tl.program_id(2)
    is_row = row < num_rows
    is_output = output < NUM_OUTPUTS
    split_inputs: tl.constexpr = (
        (NUM_INPUTS + NUM_SPLITS * BLOCK_INPUTS - 1) // (NUM_SPLITS * BLOCK_INPUTS) * BLOCK_INPUTS
    )
    first = split * split_inputs
    last = tl.minimum(first + split_inputs, NUM_INPUTS)

    # Multiply, block of inputs by block of inputs; both types of weights are exact in x's.
    x_row = x + row.to(tl.int64)[:, None] * x_stride
    value_row = values + output.to(tl.int64)[:, None] * NUM_INPUTS
    total = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float32)
    for start in range(loop_bound(first), loop_bound(last), BLOCK_INPUTS):
        column = start + tl.arange(0, BLOCK_INPUTS)[None, :]
        is_input = column < last
        a = tl.load(x_row + column, mask=is_row[:, None] & is_input, other=0.0)
        b = tl.load(value_row + column, mask=is_output[:, None] & is_input, other=0.0)
        total += dot(a, tl.trans(decode(b, a.dtype)))

    # Scale, and add the bias once.
    total *= tl.load(scales + output, mask=is_output, other=0.0)[None, :]
    if bias is not None:  # noqa: SIM102 (this one is decided when compiling)
        if split == 0:
            total += tl.load(bias + output, mask=is_output, other=0.0).to(tl.float32)[None, :]
    at = out + (split.to(tl.int64) * num_rows + row)[:, None] * NUM_OUTPUTS + output[None, :]
    mask = is_row[:, None] & is_output[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=mask)
