"""Tests of the kernel that writes keys and values to their blocks, also quantized."""

import pytest
import torch
from tests.support.engine.kernel_references import dequantize_kv

from penstock_engine.kernels.kv_quant import quantize_kv
from penstock_engine.kernels.kv_write import kv_write, kv_write_reference

SHAPES = [(1, 1, 64, 16), (5, 2, 80, 8), (33, 3, 128, 32), (7, 4, 16, 16)]


def rows(shape: tuple[int, int, int, int], dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """Keys and values cut out of a wider product, and slots for them in 9 blocks."""
    num_tokens, num_kv_heads, head_dim, block_size = shape
    torch.manual_seed(num_tokens)
    heads = torch.randn(num_tokens, 3 * num_kv_heads, head_dim, device=device).to(dtype)
    slots = torch.randperm(9 * block_size, device=device)[:num_tokens]
    return [heads[:, num_kv_heads : 2 * num_kv_heads], heads[:, 2 * num_kv_heads :], slots]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_reference(
    shape: tuple[int, int, int, int], dtype: torch.dtype, device: str
) -> None:
    """Bit for bit, and nothing else is touched."""
    keys, values, slots = rows(shape, dtype, device)
    cache = torch.randn(2, 9, shape[3], *shape[1:3], device=device).to(dtype)
    expected = cache.clone()
    kv_write_reference(keys, values, expected, slots)
    kv_write(keys, values, cache, slots)
    assert torch.equal(cache, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cache_dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("shape", SHAPES)
def test_quantizes_as_the_reference(
    shape: tuple[int, int, int, int], cache_dtype: torch.dtype, dtype: torch.dtype, device: str
) -> None:
    keys, values, slots = rows(shape, dtype, device)
    values[0] = 0.0  # of a vector of zeros the scale must not become 0
    cache = torch.zeros(2, 9, shape[3], *shape[1:3], device=device).to(cache_dtype)
    scales = torch.rand(cache.shape[:-1], device=device)
    expected, expected_scales = cache.clone(), scales.clone()
    kv_write_reference(keys, values, expected, slots, expected_scales)
    kv_write(keys, values, cache, slots, scales)
    assert torch.equal(cache.view(torch.uint8), expected.view(torch.uint8))
    assert torch.equal(scales, expected_scales)


def test_padding_is_not_written(device: str) -> None:
    """Padding of a CUDA graph, whose number of tokens is fixed, is not written."""
    keys, values, _ = rows((5, 2, 64, 16), torch.float32, device)
    cache = torch.zeros(2, 1, 8, 2, 64, device=device)
    kv_write(keys, values, cache, torch.tensor([6, -1, 2, -1, -1], device=device))
    assert torch.equal(cache[0, 0, 6], keys[0])
    assert torch.equal(cache[1, 0, 2], values[2])
    assert not cache[:, 0, [0, 1, 3, 4, 5, 7]].any()


@pytest.mark.parametrize("cache_dtype", [torch.int8, torch.float8_e4m3fn])
def test_every_number_of_the_type_and_each_middle_between_two(
    cache_dtype: torch.dtype, device: str
) -> None:
    """The scale is 1 if the vector has the largest number, so rounding is the only change."""
    codes = torch.arange(256, dtype=torch.uint8).view(cache_dtype).float()
    numbers = codes[
        codes.isfinite() & (codes >= -448) & (codes > -128 if codes.min() == -128 else True)
    ]
    numbers = numbers.unique()
    middles = (numbers[1:] + numbers[:-1]) / 2
    x = torch.cat((numbers, middles, middles * (1 + 1e-6), middles * (1 - 1e-6)))
    x = torch.cat((x, x.new_zeros(1024 - len(x))))[None, None].to(device)
    cache = torch.zeros(2, 1, 1, 1, 1024, device=device).to(cache_dtype)
    scales = torch.zeros(2, 1, 1, 1, device=device)
    kv_write(x, -x, cache, torch.zeros(1, dtype=torch.int64, device=device), scales)
    assert torch.equal(scales, torch.ones_like(scales))
    expected = torch.stack((x, -x))[:, None]
    expected = expected.round() if cache_dtype == torch.int8 else expected
    assert torch.equal(cache.float(), expected.to(cache_dtype).float())


@pytest.mark.parametrize(
    ("dtype", "relative", "of_the_largest"),
    [(torch.int8, 0.0, 0.51 / 127), (torch.float8_e4m3fn, 1 / 16, 1e-5)],
)
def test_what_quantization_costs(
    dtype: torch.dtype, relative: float, of_the_largest: float
) -> None:
    torch.manual_seed(0)
    x = torch.randn(50, 4, 96) * torch.logspace(-6, 4, 50)[:, None, None]
    values, scales = quantize_kv(x, dtype)
    assert (values.dtype, scales.dtype) == (dtype, torch.float32)
    error = (dequantize_kv(values, scales) - x).abs()
    assert (error <= relative * x.abs() + of_the_largest * x.abs().amax(-1, keepdim=True)).all()
