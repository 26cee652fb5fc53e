import pytest
import torch
import torch.nn.functional as F

from penstock_engine.kernels.int4_linear import (
    dequantize_int4,
    int4_linear,
    int4_linear_reference,
    pack_int4,
    quantize_int4,
    unpack_int4,
)
from penstock_engine.kernels.int8_linear import int8_linear, int8_linear_reference, quantize_int8

TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE)
ROWS = [(1, 5, 64), (3, 100, 1120), (70, 65, 1024)]


def operands(
    num_rows: int, num_outputs: int, num_inputs: int, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows cut out of wider ones, weights, a bias."""
    torch.manual_seed(num_rows)
    x = torch.randn(num_rows, 2 * num_inputs, device=device).to(dtype)[:, num_inputs:]
    weight = torch.randn(num_outputs, num_inputs, device=device) / num_inputs**0.5
    return x, weight, torch.randn(num_outputs, device=device).to(dtype)


@DTYPES
@pytest.mark.parametrize("stored", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("shape", ROWS)
def test_eight_bits_equal_the_reference(
    shape: tuple[int, int, int], stored: torch.dtype, dtype: torch.dtype, device: str
) -> None:
    x, weight, bias = operands(*shape, dtype, device)
    values, scales = quantize_int8(weight, stored)
    for b in (None, bias):
        expected = int8_linear_reference(x, values, scales, b)
        actual = int8_linear(x, values, scales, b)
        torch.testing.assert_close(actual, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize(
    ("shape", "group_size"),
    [(ROWS[0], 32), (ROWS[0], 64), (ROWS[1], 32), (ROWS[2], 128), (ROWS[2], 256), (ROWS[2], 1024)],
)
def test_four_bits_equal_the_reference(
    shape: tuple[int, int, int], group_size: int, has_zeros: bool, dtype: torch.dtype, device: str
) -> None:
    x, weight, bias = operands(*shape, dtype, device)
    packed, scales = quantize_int4(weight, group_size)
    zeros = None
    if has_zeros:
        zeros = torch.randint(6, 11, scales.shape, dtype=torch.uint8, device=device)
    expected = int4_linear_reference(x, packed, scales, zeros, bias)
    actual = int4_linear(x, packed, scales, zeros, bias)
    torch.testing.assert_close(actual, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("group_size", [32, 64, 128, 384])
def test_packing_is_undone_by_unpacking(group_size: int) -> None:
    codes = torch.randint(0, 16, (5, 768), dtype=torch.uint8)
    assert torch.equal(unpack_int4(pack_int4(codes, group_size), group_size), codes)


def test_where_codes_lie() -> None:
    """Input 0 in the low bits of byte 0, input 64 of the first 128 in its high bits."""
    codes = torch.zeros(1, 256, dtype=torch.uint8)
    codes[0, 0], codes[0, 64], codes[0, 129] = 1, 2, 3
    packed = pack_int4(codes, 256)
    assert (packed[0, 0], packed[0, 65], packed.count_nonzero()) == (1 | 2 << 4, 3, 2)


@pytest.mark.parametrize(
    ("bits", "worst"), [(8, 0.51 / 127), (4, 1 / 8 + 1e-6)], ids=["int8", "int4"]
)
def test_what_quantization_costs(bits: int, worst: float) -> None:
    """Of the largest weight that shares the scale: half a step, or, opposite to it, a whole one."""
    torch.manual_seed(0)
    weight = torch.randn(20, 256) * torch.logspace(-6, 2, 20)[:, None]
    weight[3] = 0.0
    if bits == 8:
        values, scales = quantize_int8(weight)
        wide = int8_linear_reference(torch.eye(256), values, scales).T
        largest = weight.abs().amax(1, keepdim=True).expand_as(weight)
    else:
        wide = dequantize_int4(*quantize_int4(weight, 128))
        groups = weight.unflatten(1, (2, 128))
        largest = groups.abs().amax(2, keepdim=True).expand_as(groups).flatten(1)
    assert ((wide - weight).abs() <= worst * largest).all()


def test_zeros_are_subtracted_before_the_scale() -> None:
    codes = torch.randint(0, 16, (3, 64), dtype=torch.uint8)
    scales, zeros = torch.rand(3, 2), torch.randint(0, 16, (3, 2), dtype=torch.uint8)
    expected = (codes.view(3, 2, 32).float() - zeros[..., None]) * scales[..., None]
    packed = pack_int4(codes, 32)
    assert torch.equal(dequantize_int4(packed, scales, zeros), expected.flatten(1))
    x = torch.randn(4, 64)
    expected = F.linear(x, expected.flatten(1))
    torch.testing.assert_close(int4_linear_reference(x, packed, scales, zeros), expected)
