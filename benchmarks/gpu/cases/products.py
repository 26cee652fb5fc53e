"""Cases of matrix products: 8-bit and 4-bit weights, grouped rows, mixtures of experts, adapters."""

from functools import partial
from typing import Any

import torch
from benchmarks.gpu.cases.case import Kind, Prepared, Row, compare, compare_bits
from benchmarks.gpu.cases.inputs import PADDINGS, Inputs
from benchmarks.gpu.cases.rows import DTYPES
from tests.support.engine.kernel_references import (
    group_rows_reference,
    grouped_linear_reference,
    int4_linear_reference,
    int8_linear_reference,
    moe_reference,
)

from penstock_engine.kernels.group_rows import Groups, group_rows
from penstock_engine.kernels.grouped_linear import choose_block_rows, grouped_linear
from penstock_engine.kernels.int4_linear import int4_linear
from penstock_engine.kernels.int8_linear import int8_linear
from penstock_engine.kernels.moe import moe
from penstock_engine.kernels.silu_mul import silu_mul
from penstock_engine.quantization.int4 import BLOCK_ROWS as INT4_BLOCKS

# Relative and absolute, for results of about 1.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
# Two products after another, with a rounding in between.
MOE_TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 5e-2}


def _int8_linear(row: Row, inputs: Inputs) -> Prepared:
    """Scales, one for each output or for each group of inputs, of which the last may be shorter."""
    (num_outputs, num_inputs, group_size), dtype = row["weights"], row["dtype"]
    group_size = group_size or num_inputs
    num_groups = -(-num_inputs // group_size)
    x = inputs.normal(row["rows"], num_inputs, dtype=dtype, padding=row["padding"])
    std = num_inputs**-0.5
    zeros = None
    if row["codes"] == "float8":
        codes = inputs.normal(num_outputs, num_inputs, std=64.0).to(torch.float8_e4m3fn)
        largest = 64.0
    else:
        codes = inputs.integers(-128, 128, num_outputs, num_inputs, dtype=torch.int8)
        largest = 74.0
        if row["codes"] == "int8 with zeros":
            zeros = inputs.integers(-128, 128, num_outputs, num_groups, dtype=torch.int16)
            largest = 105.0
    scales = inputs.uniform(num_outputs, num_groups, dtype=dtype, below=2 * std / largest)
    scales /= row["factor"]
    options: dict[str, Any] = {"zeros": zeros, "factor": row["factor"]}

    def differences(output: torch.Tensor) -> list[str]:
        expected = int8_linear_reference(x, codes, scales, group_size, **options)
        return compare("the product", output, expected, TOLERANCE[dtype])

    return Prepared(
        partial(int8_linear, x, codes, scales, group_size, **options), differences
    )  # fmt: skip


def _int4_linear(row: Row, inputs: Inputs) -> Prepared:
    (num_outputs, num_inputs, group_size), dtype = row["weights"], row["dtype"]
    num_blocks = -(-num_outputs // row["block"])
    x = inputs.normal(row["rows"], num_inputs, dtype=dtype, padding=row["padding"])
    packed = inputs.integers(0, 256, num_blocks, num_inputs, row["block"] // 2, dtype=torch.uint8)
    shape = (num_inputs // group_size, num_blocks * row["block"], 2)
    factors = inputs.uniform(*shape, dtype=dtype, below=0.4 * num_inputs**-0.5)

    def differences(output: torch.Tensor) -> list[str]:
        expected = int4_linear_reference(x, packed, factors, num_outputs)
        return compare("the product", output, expected, TOLERANCE[dtype])

    return Prepared(partial(int4_linear, x, packed, factors, num_outputs), differences)


def _group_rows(row: Row, inputs: Inputs) -> Prepared:
    num_rows, num_groups = row["shape"]
    groups = inputs.integers(row["lowest"], num_groups, num_rows, dtype=row["dtype"])
    if row["is_one"]:
        groups.fill_(row["lowest"])

    def differences(output: Groups) -> list[str]:
        expected = group_rows_reference(groups, num_groups, row["block_rows"])
        return [
            *compare_bits("the rows", output.rows, expected.rows),
            *compare_bits("the groups of blocks", output.block_groups, expected.block_groups),
        ]

    return Prepared(partial(group_rows, groups, num_groups, row["block_rows"]), differences)


def _moe(row: Row, inputs: Inputs) -> Prepared:
    """Routing in which some shares belong to experts of other devices."""
    (k, num_experts, hidden, size), dtype = row["experts"], row["dtype"]
    x = inputs.normal(row["tokens"], hidden, dtype=dtype, padding=row["padding"])
    gate_up = inputs.normal(num_experts, 2 * size, hidden, dtype=dtype, std=hidden**-0.5)
    down = inputs.normal(num_experts, hidden, size, dtype=dtype, std=size**-0.5)
    ids = inputs.integers(0, num_experts, row["tokens"], k)
    ids[::3, 0] = -1
    weights = inputs.uniform(row["tokens"], k, dtype=torch.float32)

    def differences(output: torch.Tensor) -> list[str]:
        expected = moe_reference(x, gate_up, down, ids, weights).to(dtype)
        return compare("the mixture", output.to(dtype), expected, MOE_TOLERANCE[dtype])

    return Prepared(partial(moe, x, gate_up, down, ids, weights, silu_mul), differences)


def _adapters(row: Row, inputs: Inputs) -> Prepared:
    """Both products of adapters; the second is added to some columns of a wider result."""
    (num_adapters, rank, num_inputs, num_outputs), dtype = row["adapters"], row["dtype"]
    num_tokens, padding = row["tokens"], row["padding"]
    adapters = inputs.integers(-1, num_adapters, num_tokens)
    x = inputs.normal(num_tokens, num_inputs, dtype=dtype, padding=padding)
    a = inputs.normal(num_adapters, rank, num_inputs, dtype=dtype, std=num_inputs**-0.5)
    b = inputs.normal(num_adapters, num_outputs, rank, dtype=dtype, std=rank**-0.5)
    y = inputs.normal(num_tokens, num_outputs, dtype=dtype, padding=padding)
    before = y.clone()

    def launch() -> torch.Tensor:
        block_rows = choose_block_rows(num_tokens, num_adapters)
        groups = group_rows(adapters, num_adapters, block_rows)
        shrunk = grouped_linear(x, a, groups, out_dtype=torch.float32)
        grouped_linear(shrunk, b, groups, out=y)
        return shrunk

    def differences(shrunk: torch.Tensor) -> list[str]:
        groups = group_rows_reference(adapters, num_adapters, 16)
        expected = grouped_linear_reference(x, a, groups, out_dtype=torch.float32)
        has_none = adapters < 0
        kept, kept_before = y[has_none], before[has_none]
        grouped_linear_reference(expected, b, groups, out=before)
        return [
            *compare("the first product", shrunk, expected, 1e-4),
            *compare("the sum", y, before, MOE_TOLERANCE[dtype]),
            *compare_bits("rows without an adapter", kept, kept_before),
        ]

    return Prepared(launch, differences)


def product_kinds(*, is_small: bool) -> list[Kind]:
    """The kinds of cases of this module. is_small: without the sizes that take the interpreter long."""
    large = not is_small
    rows = (1, 5, 70) if is_small else (1, 5, 17, 70, 1000)
    eight = [(5, 64, 0), (100, 1120, 0), (70, 1000, 80), (70, 1000, 16), (65, 1024, 128)]
    eight += [(4096, 4096, 0), (1000, 14_336, 128)] if large else []
    four = [(5, 64, 32), (100, 1120, 32), (65, 1024, 128), (65, 1024, 1024)]
    four += [(4096, 4096, 128), (1000, 14_336, 64)] if large else []
    groups = [(1, 1), (5, 3), (100, 8), (40, 130), (1100, 3)] + ([(20_000, 128)] if large else [])
    experts = [(1, 1, 64, 16), (2, 8, 100, 33), (3, 5, 130, 70)]
    experts += [(2, 2, 1100, 64), (8, 64, 1024, 768)] if large else []
    adapters = [(1, 8, 64, 64), (3, 1, 100, 30), (33, 64, 70, 65)]
    adapters += [(4, 24, 1100, 150), (8, 16, 4096, 4096)] if large else []
    tokens = (1, 9, 40) if is_small else (1, 9, 40, 600)
    common = {"dtype": DTYPES, "padding": PADDINGS}
    return [
        Kind("int8_linear",
             common | {"rows": rows, "weights": tuple(eight), "factor": (1.0, 1 / 256),
                       "codes": ("int8", "int8 with zeros", "float8")}, _int8_linear),
        Kind("int4_linear",
             common | {"rows": rows, "weights": tuple(four), "block": INT4_BLOCKS}, _int4_linear),
        Kind("group_rows",
             {"shape": tuple(groups), "lowest": (-1, 0), "block_rows": (16, 64),
              "dtype": (torch.int32, torch.int64), "is_one": (False, True)}, _group_rows),
        Kind("moe", common | {"tokens": tokens, "experts": tuple(experts)}, _moe),
        Kind("adapters", common | {"tokens": tokens, "adapters": tuple(adapters)}, _adapters),
    ]  # fmt: skip
