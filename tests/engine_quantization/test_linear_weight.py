"""Products of quantized weights against those of the dequantized matrix."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.eight_bits import Float8Weight, Int8Weight
from penstock_engine.quantization.int4 import Int4Weight, kernel_block_rows, pack
from penstock_engine.quantization.linear_weight import ConcatenatedWeight, make_linear_weight
from penstock_engine.quantization.matrix import QuantizedMatrix
from penstock_engine.quantization.rounding import round_to_int8
from penstock_engine.quantization.weight import BLOCK_NUMBERS, MAX_KERNEL_ROWS, QuantizedWeight

# Relative to the product of magnitudes, as rounding errors of a sum of products are bounded.
TOLERANCES = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}
KINDS = {"int4": Int4Weight, "int8": Int8Weight, "fp8": Float8Weight}


def random_matrix(
    kind: str, num_outputs: int, num_inputs: int, group_size: int,
    *, has_zeros: bool = False, has_order: bool = False, seed: int = 0,
) -> QuantizedMatrix:  # fmt: skip
    draw = torch.Generator().manual_seed(seed)
    shape = (num_outputs, num_inputs)
    if kind == "fp8":
        codes = (torch.randn(shape, generator=draw) * 100).clamp(-448, 448)
        codes = codes.to(torch.float8_e4m3fn)
    else:
        top = 8 if kind == "int4" else 128
        codes = torch.randint(-top, top, shape, generator=draw).to(torch.int8)
    groups = (num_outputs, -(-num_inputs // group_size))
    # Numbers of few bits, so that rounding them to the model's type changes nothing.
    scales = torch.randint(1, 32, groups, generator=draw) / 64
    zeros = torch.randint(-4, 4, groups, generator=draw).short() if has_zeros else None
    order = torch.randperm(num_inputs, generator=draw) if has_order else None
    return QuantizedMatrix(codes, scales, 4 if kind == "int4" else 8, group_size, zeros, order)


def check_products(weight: QuantizedWeight, matrix: QuantizedMatrix, dtype: torch.dtype) -> None:
    for num_rows in (1, MAX_KERNEL_ROWS, MAX_KERNEL_ROWS + 1):
        x = torch.randn(num_rows, matrix.shape[1], dtype=dtype)
        full = matrix.dequantized()
        actual = weight(x)
        assert actual.dtype == dtype
        error = (actual.float() - x.float() @ full.T).abs()
        assert (error <= TOLERANCES[dtype] * (x.float().abs() @ full.abs().T) + 1e-6).all()


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(list(KINDS)),
    dtype=st.sampled_from(list(TOLERANCES)),
    num_outputs=st.integers(1, 200),
    group_size=st.sampled_from([1, 3, 16, 32, 64, 96, 128]),
    num_groups=st.integers(1, 4),
    has_zeros=st.booleans(),
    has_order=st.booleans(),
    seed=st.integers(0, 999),
)
def test_products_equal_those_of_the_dequantized_matrix(
    kind: str, dtype: torch.dtype, num_outputs: int, group_size: int, num_groups: int,
    has_zeros: bool, has_order: bool, seed: int,
) -> None:  # fmt: skip
    torch.manual_seed(seed)
    matrix = random_matrix(
        kind, num_outputs, group_size * num_groups, group_size,
        has_zeros=has_zeros and kind != "fp8", has_order=has_order, seed=seed,
    )  # fmt: skip
    weight = make_linear_weight([matrix], dtype, "cpu")
    assert isinstance(weight, KINDS[kind])
    check_products(weight, matrix, dtype)


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_float16_holds_products_of_large_inputs(kind: str) -> None:
    """Products of codes sum to 25 million here, beyond float16's 65,504; scaled ones do not."""
    torch.manual_seed(0)
    matrix = random_matrix(kind, 40, 4096, 4096)
    codes = matrix.codes.float().abs().clamp(max=127).to(matrix.codes.dtype)
    matrix = replace(matrix, codes=codes, scales=matrix.scales / 1024)
    x = 200 * torch.rand(3, 4096, dtype=torch.float16)
    expected = x.float() @ matrix.dequantized().T
    actual = make_linear_weight([matrix], torch.float16, "cpu")(x).float()
    torch.testing.assert_close(actual, expected, rtol=2e-3, atol=0)


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_the_last_group_may_be_shorter(kind: str) -> None:
    matrix = random_matrix(kind, 20, 200, 128)
    weight = make_linear_weight([matrix], torch.float32, "cpu")
    assert isinstance(weight, QuantizedWeight)
    check_products(weight, matrix, torch.float32)


@pytest.mark.parametrize("kind", list(KINDS))
def test_rows_beyond_one_block(kind: str) -> None:
    """The matrix has more numbers than the unpacking buffer, so it is multiplied in several blocks."""
    matrix = random_matrix(kind, 2 * BLOCK_NUMBERS // 4096 + 37, 4096, 128)
    weight = make_linear_weight([matrix], torch.float32, "cpu")
    assert isinstance(weight, QuantizedWeight)
    check_products(weight, matrix, torch.float32)


def test_every_float8_is_itself() -> None:
    codes = torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn)
    codes = codes[codes.float().isfinite()].reshape(1, -1)
    weight = Float8Weight(QuantizedMatrix(codes, torch.ones(1, 1), 8, 254), torch.float32)
    assert torch.equal(weight(torch.eye(254)).T, codes.float())


def test_the_kernel_of_torch_has_the_layout_that_is_assumed() -> None:
    """Were it another one, int4 would still be right, but slow where it should be fast."""
    block_rows = kernel_block_rows()
    assert block_rows in (32, 64)
    codes = torch.randint(0, 16, (128, 64))
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 2)
    assert torch.equal(pack(codes.to(torch.uint8), block_rows).flatten(), packed.flatten())


@pytest.mark.parametrize("has_zeros", [False, True])
def test_the_kernel_and_the_unpacking_multiply_by_the_same_weights(
    has_zeros: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)  # rounding alone may pass the limit by chance
    matrix = random_matrix("int4", 70, 256, 64, has_zeros=has_zeros)
    weight = Int4Weight(matrix, torch.bfloat16)
    x = torch.randn(4, 256, dtype=torch.bfloat16)
    by_kernel = weight(x)
    monkeypatch.setattr(weight, "_has_kernel", False)
    assert torch.allclose(by_kernel.float(), weight(x).float(), rtol=1e-2, atol=0.2)


def test_bytes_are_few() -> None:
    full = torch.randn(256, 1024)
    int8 = make_linear_weight([round_to_int8(full, torch.float32)], torch.float32, "cpu")
    assert isinstance(int8, QuantizedWeight)
    assert int8.memory_bytes() == 256 * 1024 + 4 * 256
    int4 = make_linear_weight([random_matrix("int4", 256, 1024, 128)], torch.bfloat16, "cpu")
    assert isinstance(int4, QuantizedWeight)
    assert int4.memory_bytes() == 256 * 1024 // 2 + 2 * 2 * 256 * 8


@pytest.mark.parametrize(
    "others",
    [
        [random_matrix("int8", 3, 64, 64)],
        [random_matrix("int4", 3, 64, 32)],
        [random_matrix("int4", 3, 64, 16, has_order=True)],
        [torch.randn(3, 64)],
    ],
    ids=["bits", "group size", "order", "not quantized"],
)
def test_matrices_that_are_not_alike_are_held_side_by_side(
    others: list[QuantizedMatrix | torch.Tensor],
) -> None:
    first = random_matrix("int4", 5, 64, 16)
    weight = make_linear_weight([first, *others], torch.float32, "cpu")
    assert isinstance(weight, ConcatenatedWeight)
    rows = [first.dequantized()]
    rows += [o if isinstance(o, torch.Tensor) else o.dequantized() for o in others]
    torch.testing.assert_close(weight(torch.eye(64)).T, torch.cat(rows), rtol=1e-6, atol=1e-6)


def test_matrices_that_are_alike_become_one() -> None:
    """Matrices with and without zero points are joined to one weight."""
    parts = [random_matrix("int4", n, 64, 16, has_zeros=n == 5) for n in (5, 3)]
    weight = make_linear_weight(parts, torch.float32, "cpu")
    assert isinstance(weight, Int4Weight)
    rows = torch.cat([part.dequantized() for part in parts])
    torch.testing.assert_close(weight(torch.eye(64)).T, rows, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("scales", "zeros", "order"),
    [
        (torch.ones(4, 3), None, None),
        (torch.ones(5, 2), None, None),
        (torch.ones(4, 2), torch.zeros(4, 1), None),
        (torch.ones(4, 2), None, torch.arange(31)),
    ],
)
def test_scales_of_other_weights_are_refused(
    scales: torch.Tensor, zeros: torch.Tensor | None, order: torch.Tensor | None
) -> None:
    with pytest.raises(ModelError, match="do not belong"):
        QuantizedMatrix(torch.zeros(4, 32, dtype=torch.int8), scales, 8, 16, zeros, order)
