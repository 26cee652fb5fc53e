# mypy: allow-incomplete-defs
"""A product with weights of four bits, made wide again where they are multiplied.

Each output has a scale, and perhaps a zero, for each group of inputs. A byte holds two inputs of
one unit, which is the group or 128 inputs of a longer one, so that each half is one product:

    unit of 128 inputs:  byte j = input j (low bits) | input 64 + j (high bits)
"""

import torch
import torch.nn.functional as F

from penstock_engine.kernels.int8_linear import choose_block_rows
from penstock_engine.kernels.runtime import dot, jit, loop_bound, splits_to_fill, tl

LONGEST_UNIT = 128
MIDDLE = 8  # the zero of weights that have none of their own
BLOCK_OUTPUTS = 64
MIN_SPLIT_INPUTS = 512  # below, adding up the parts costs more than they save


def quantize_int4(weight: torch.Tensor, group_size: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """weight: [outputs, inputs], inputs a multiple of group_size, which is a multiple of 32.

    Returns uint8 [outputs, inputs / 2] and float32 scales [outputs, inputs / group_size]. A group's
    largest magnitude becomes -8, the only code that has no opposite.
    """
    groups = weight.float().reshape(len(weight), -1, group_size)
    largest = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    scales = largest / -MIDDLE
    scales = scales.where(scales != 0, 1.0)
    codes = ((groups / scales).round() + MIDDLE).clamp(0, 15).to(torch.uint8)
    return pack_int4(codes.flatten(1), group_size), scales[..., 0].contiguous()


def pack_int4(codes: torch.Tensor, group_size: int) -> torch.Tensor:
    """codes: uint8 [outputs, inputs], each below 16 -> uint8 [outputs, inputs / 2]."""
    low, high = codes.reshape(len(codes), -1, 2, unit_of(group_size) // 2).unbind(2)
    return (low | high << 4).flatten(1)


def unpack_int4(packed: torch.Tensor, group_size: int) -> torch.Tensor:
    """The inverse of pack_int4."""
    halves = packed.reshape(len(packed), -1, unit_of(group_size) // 2)
    return torch.stack((halves & 15, halves >> 4), 2).flatten(1)


def unit_of(group_size: int) -> int:
    return min(group_size, LONGEST_UNIT)


def dequantize_int4(
    packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None
) -> torch.Tensor:
    """float32 [outputs, inputs]. zeros: uint8 of the shape of scales; None: all 8."""
    group_size = 2 * packed.shape[1] // scales.shape[1]
    groups = unpack_int4(packed, group_size).float().reshape(len(packed), -1, group_size)
    middle = MIDDLE if zeros is None else zeros[..., None].float()
    return ((groups - middle) * scales[..., None]).flatten(1)


def int4_linear_reference(
    x: torch.Tensor,
    packed: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """x: [rows, inputs] -> [rows, outputs] of its type. Sums are float32.

    packed: uint8 [outputs, inputs / 2], as pack_int4 makes it; scales: float32 [outputs, groups];
    zeros: uint8 [outputs, groups] or None for 8; bias: [outputs].
    """
    result = F.linear(x.float(), dequantize_int4(packed, scales, zeros))
    return (result if bias is None else result + bias.float()).to(x.dtype)


def int4_linear(
    x: torch.Tensor,
    packed: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """As int4_linear_reference. Rows of x may be cut out of wider ones."""
    num_rows, num_inputs = x.shape
    num_outputs, num_groups = scales.shape
    assert packed.is_contiguous()
    assert scales.is_contiguous()
    assert zeros is None or zeros.is_contiguous()
    assert x.stride(1) == 1
    block_rows = choose_block_rows(num_rows, x.element_size())
    grid = (-(-num_rows // block_rows), -(-num_outputs // BLOCK_OUTPUTS))
    num_splits = splits_to_fill(grid[0] * grid[1], num_inputs // MIN_SPLIT_INPUTS)
    output = x.new_empty(num_rows, num_outputs)
    target = output
    if num_splits > 1:
        target = x.new_empty(num_splits, num_rows, num_outputs, dtype=torch.float32)
    _int4_linear_kernel[(*grid, num_splits)](
        x,
        packed,
        scales,
        zeros,
        bias,
        target,
        num_rows,
        x.stride(0),
        NUM_INPUTS=num_inputs,
        NUM_OUTPUTS=num_outputs,
        NUM_GROUPS=num_groups,
        UNIT=unit_of(num_inputs // num_groups),
        BLOCK_ROWS=block_rows,
        BLOCK_OUTPUTS=BLOCK_OUTPUTS,
        NUM_SPLITS=num_splits,
    )
    return output if num_splits == 1 else output.copy_(target.sum(0))


@jit
def _int4_linear_kernel(
    x,
    packed,
    scales,
    zeros,
    bias,
    out,
    num_rows,
    x_stride,
    NUM_INPUTS: tl.constexpr,
    NUM_OUTPUTS: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
    UNIT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
):
    # Locate: a block of rows, a range of outputs, a part of the units.
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    split = tl.program_id(2)
    is_row = row < num_rows
    is_output = output < NUM_OUTPUTS
    num_units: tl.constexpr = NUM_INPUTS // UNIT
    units_of_group: tl.constexpr = num_units // NUM_GROUPS
    split_units: tl.constexpr = (num_units + NUM_SPLITS - 1) // NUM_SPLITS
    first = split * split_units
    last = tl.minimum(first + split_units, num_units)

    # Multiply, unit by unit. A code less its zero is exact in the type of x; scales come after.
    half = tl.arange(0, UNIT // 2)[None, :]
    x_row = x + row.to(tl.int64)[:, None] * x_stride
    packed_row = packed + output.to(tl.int64)[:, None] * (NUM_INPUTS // 2)
    total = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float32)
    for unit in range(loop_bound(first), loop_bound(last)):
        a_at = x_row + unit * UNIT + half
        low_a = tl.load(a_at, mask=is_row[:, None], other=0.0)
        high_a = tl.load(a_at + UNIT // 2, mask=is_row[:, None], other=0.0)
        codes = tl.load(packed_row + unit * (UNIT // 2) + half, mask=is_output[:, None], other=0)
        group = output * NUM_GROUPS + unit // units_of_group
        zero = 8.0
        if zeros is not None:
            zero = tl.load(zeros + group, mask=is_output, other=0).to(tl.float32)[:, None]
        low = (codes & 15).to(tl.float32) - zero
        high = (codes >> 4).to(tl.float32) - zero
        part = dot(low_a, tl.trans(low.to(low_a.dtype)))
        part += dot(high_a, tl.trans(high.to(low_a.dtype)))
        total += part * tl.load(scales + group, mask=is_output, other=0.0)[None, :]

    # Add the bias once.
    if bias is not None:  # noqa: SIM102 (this one is decided when compiling)
        if split == 0:
            total += tl.load(bias + output, mask=is_output, other=0.0).to(tl.float32)[None, :]
    at = out + (split.to(tl.int64) * num_rows + row)[:, None] * NUM_OUTPUTS + output[None, :]
    mask = is_row[:, None] & is_output[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=mask)
