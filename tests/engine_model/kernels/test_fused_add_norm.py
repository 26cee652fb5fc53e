"""Tests of the fused residual add and RMSNorm kernel."""

import pytest
import torch
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm

from penstock_engine.kernels.fused_add_norm import fused_add_norm
from penstock_engine.kernels.torch_ops import add_norm

# The interpreter cuts float32 down to bfloat16 without rounding.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("shape", [(1, 8), (33, 96), (3, 5, 80), (7, 3, 128), (2, 5000)])
def test_equals_what_torch_does(
    shape: tuple[int, ...], offset: float, is_added: bool, dtype: torch.dtype, device: str
) -> None:
    """The input rows are strided views of wider rows: one vector per token, or several heads."""
    torch.manual_seed(sum(shape))
    wide = torch.randn(shape[0], *shape[1:-1], 3 * shape[-1], device=device).to(dtype)
    wide = wide.view(shape[0], -1, shape[-1])
    x = wide[:, 1 : 1 + shape[1]] if len(shape) == 3 else wide[:, 1]
    weight = torch.randn(shape[-1], device=device).to(dtype)
    residual = torch.randn(shape, device=device).to(dtype) if is_added else None
    expected_residual = None if residual is None else residual.clone()
    expected = add_norm(x, expected_residual, weight, 1e-6, weight_offset=offset)
    actual = fused_add_norm(x, residual, weight, 1e-6, weight_offset=offset)
    close = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    torch.testing.assert_close(actual, expected, **close)
    torch.testing.assert_close(residual, expected_residual, **close)


def test_an_offset_of_one_is_gemmas_norm() -> None:
    torch.manual_seed(0)
    norm = Gemma3RMSNorm(48, eps=1e-5)
    norm.weight.data.normal_()
    x, residual = torch.randn(2, 7, 48)
    expected = norm(x + residual)
    actual = add_norm(x, residual, norm.weight.data, 1e-5, weight_offset=1.0)
    torch.testing.assert_close(actual, expected)
