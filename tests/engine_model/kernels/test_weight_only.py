"""Weights as the quantization package holds them: the kernels read its layouts."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
import torch.nn.functional as F
from tests.support.engine.kernel_references import int4_linear_reference, int8_linear_reference
from torch import nn

from penstock_engine.kernels.int4_linear import int4_linear
from penstock_engine.kernels.int8_linear import int8_linear
from penstock_engine.layers.linear import Linear
from penstock_engine.quantization.int4 import Int4Weight
from penstock_engine.quantization.linear_weight import make_linear_weight
from penstock_engine.quantization.matrix import QuantizedMatrix
from penstock_engine.quantization.rounding import round_to_int4, round_to_int8

TOLERANCE = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE)
SHAPES = [(1, 5, 64), (3, 100, 1120), (70, 65, 1024)]


def operands(
    num_rows: int, num_outputs: int, num_inputs: int, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows cut out of wider ones, and weights."""
    torch.manual_seed(num_rows)
    x = torch.randn(num_rows, 2 * num_inputs, device=device).to(dtype)[:, num_inputs:]
    weight = torch.randn(num_outputs, num_inputs, device=device) / num_inputs**0.5
    return x, weight


def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


@DTYPES
@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_scale_for_each_row(
    shape: tuple[int, int, int], kind: torch.dtype, dtype: torch.dtype, device: str
) -> None:
    x, weight = operands(*shape, dtype, device)
    matrix = round_to_int8(weight, dtype)
    codes = matrix.codes if kind == torch.int8 else (weight * 100).to(kind)
    for factor in (1.0, 1 / 256):
        expected = int8_linear_reference(x, codes, matrix.scales, shape[2], factor=factor)
        check(int8_linear(x, codes, matrix.scales, shape[2], factor=factor), expected)


@DTYPES
@pytest.mark.parametrize("group_size", [16, 80, 128])
def test_a_scale_and_a_zero_for_each_group(
    group_size: int, dtype: torch.dtype, device: str
) -> None:
    """The last group is shorter than the others."""
    x, _ = operands(5, 70, 1000, dtype, device)
    num_groups = -(-1000 // group_size)
    codes = torch.randint(-128, 128, (70, 1000), dtype=torch.int8, device=device)
    zeros = torch.randint(-128, 128, (70, num_groups), dtype=torch.int16, device=device)
    scales = torch.rand(70, num_groups, device=device).to(dtype) / 5000
    for z in (None, zeros):
        expected = int8_linear_reference(x, codes, scales, group_size, zeros=z)
        check(int8_linear(x, codes, scales, group_size, zeros=z), expected)


def test_the_reference_of_eight_bits_multiplies_what_the_matrix_says() -> None:
    codes = torch.randint(-128, 128, (7, 50), dtype=torch.int8)
    zeros = torch.randint(-128, 128, (7, 4), dtype=torch.int16)
    scales, x = torch.rand(7, 4), torch.randn(3, 50)
    matrix = QuantizedMatrix(codes, scales, 8, 16, zeros)
    expected = F.linear(x, matrix.dequantized())
    torch.testing.assert_close(int8_linear_reference(x, codes, scales, 16, zeros=zeros), expected)


@DTYPES
@pytest.mark.parametrize(
    ("shape", "group_size"),
    [(SHAPES[0], 32), (SHAPES[1], 32), (SHAPES[2], 128), (SHAPES[2], 256), (SHAPES[2], 1024)],
)
def test_four_bits(
    shape: tuple[int, int, int], group_size: int, dtype: torch.dtype, device: str
) -> None:
    """Rows are padded to whole blocks."""
    x, weight = operands(*shape, dtype, device)
    held = Int4Weight(round_to_int4(weight, group_size, dtype), dtype)
    arguments = (x, held.packed, held.scales_and_offsets, shape[1])
    check(int4_linear(*arguments), int4_linear_reference(*arguments))


def test_the_reference_of_four_bits_multiplies_what_the_matrix_says() -> None:
    x, weight = operands(3, 70, 256, torch.float32, "cpu")
    matrix = round_to_int4(weight, 64, torch.float32)
    held = Int4Weight(matrix, torch.float32)
    actual = int4_linear_reference(x, held.packed, held.scales_and_offsets, 70)
    torch.testing.assert_close(actual, F.linear(x, matrix.dequantized()))


def random_matrix(
    kind: str, num_outputs: int, num_inputs: int, group_size: int, *, is_odd: bool
) -> QuantizedMatrix:
    """is_odd: with zeros, where there can be any, and inputs in another order."""
    num_groups = -(-num_inputs // group_size)
    scales = torch.rand(num_outputs, num_groups) / 100
    codes = torch.randint(-8, 8, (num_outputs, num_inputs), dtype=torch.int8)
    zeros = None
    if kind == "fp8":
        codes = torch.randn(num_outputs, num_inputs).to(torch.float8_e4m3fn)
    elif is_odd:
        zeros = torch.randint(-8, 8, (num_outputs, num_groups), dtype=torch.int16)
    order = torch.randperm(num_inputs) if is_odd else None
    return QuantizedMatrix(codes, scales, 4 if kind == "int4" else 8, group_size, zeros, order)


@pytest.mark.parametrize("is_odd", [False, True])
@pytest.mark.parametrize(
    ("kind", "group_size"),
    [("int8", 192), ("int8", 64), ("int8", 80), ("int8", 12), ("fp8", 192), ("fp8", 128),
     ("int4", 64), ("int4", 12)],
)  # fmt: skip
def test_a_layer_multiplies_what_its_matrices_say(
    computing: Callable[[str], AbstractContextManager[None]],
    kind: str,
    group_size: int,
    is_odd: bool,
    device: str,
) -> None:
    """Three of them joined, of which one stays wide. Groups of 12 are not for the kernels."""
    torch.manual_seed(group_size)
    parts = [random_matrix(kind, n, 192, group_size, is_odd=is_odd) for n in (20, 70)]
    wide = torch.randn(5, 192) / 10
    x = torch.randn(2, 3, 192)
    expected = F.linear(x, torch.cat([*(part.dequantized() for part in parts), wide]))
    layer = Linear(192, 95, bias=True)
    layer.bias = nn.Parameter(torch.randn(95, device=device))
    del layer.weight
    layer.weight = make_linear_weight([*parts, wide], torch.float32, device)
    with computing("triton"):
        actual = layer(x.to(device)) - layer.bias
    torch.testing.assert_close(actual.cpu(), expected, atol=1e-4, rtol=1e-4)
