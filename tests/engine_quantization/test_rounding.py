"""Tests of int8 and int4 rounding of weights."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.rounding import (
    RoundToNearest,
    group_size,
    round_to_int4,
    round_to_int8,
)
from penstock_engine.quantization.scheme import Header

DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
# A scale is rounded to the model's type, and what lies at the end of the range with it.
SLACK = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.6}


def weights(seed: int, magnitude: float, shape: tuple[int, int]) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw) * magnitude


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 999), magnitude=st.floats(1e-3, 100), dtype=DTYPES)
def test_int8_is_within_half_a_step(seed: int, magnitude: float, dtype: torch.dtype) -> None:
    weight = weights(seed, magnitude, (5, 40))
    matrix = round_to_int8(weight, dtype)
    steps = (matrix.dequantized() - weight).abs() / matrix.scales.float()
    assert steps.max() <= 0.5 + SLACK[dtype]
    assert matrix.codes.abs().amax(1).min() >= 126


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 999), magnitude=st.floats(1e-2, 100), dtype=DTYPES, shift=st.floats(-3, 3)
)
def test_int4_is_within_half_a_step_but_for_the_ends(
    seed: int, magnitude: float, dtype: torch.dtype, shift: float
) -> None:
    """The 16 steps are moved by less than half of one, so that one of them is at 0."""
    weight = weights(seed, magnitude, (5, 64)) + shift * magnitude
    matrix = round_to_int4(weight, 32, dtype)
    scales = matrix.scales.float().repeat_interleave(32, 1)
    steps = (matrix.dequantized() - weight).abs() / scales
    assert steps.max() <= 1 + SLACK[dtype]
    assert (steps <= 0.5 + 1e-3).float().mean() > 0.8
    assert matrix.codes.min() >= -8
    assert matrix.codes.max() <= 7


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_zeros_stay_zeros(dtype: torch.dtype) -> None:
    weight = torch.tensor([[0.0] * 32, [0.0, 1.0] * 16, [0.0, -1.0] * 16])
    for matrix in (round_to_int8(weight, dtype), round_to_int4(weight, 16, dtype)):
        assert torch.equal(matrix.dequantized()[weight == 0], torch.zeros(64))


def test_what_is_quantized_already_is_not_changed() -> None:
    weight = weights(0, 1, (8, 64))
    for once in (round_to_int8(weight, torch.float32), round_to_int4(weight, 32, torch.float32)):
        full = once.dequantized()
        rounded = (
            round_to_int8(full, torch.float32)
            if once.bits == 8
            else round_to_int4(full, 32, torch.float32)
        )
        torch.testing.assert_close(rounded.dequantized(), full, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("num_inputs", "size"), [(4096, 128), (896, 128), (2880, 64), (96, 32), (80, 16)]
)
def test_groups_are_smaller_where_128_does_not_divide(num_inputs: int, size: int) -> None:
    assert group_size(num_inputs) == size


def test_a_width_without_groups_says_what_to_do() -> None:
    with pytest.raises(ModelError, match="set --quantization to int8"):
        group_size(100)


def test_only_products_are_rounded() -> None:
    headers = {
        name: Header("F32", (64, 32))
        for name in (
            "model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.gate.weight",
            "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.bias",
        )
    }  # fmt: skip
    stored = RoundToNearest("int8", "float32", {"up_proj"}).describe(headers)
    assert list(stored) == ["model.layers.0.mlp.up_proj"]
