"""Tests of the fused SiLU and multiply kernel."""

from collections.abc import Callable

import pytest
import torch

from penstock_engine.kernels.silu_mul import gelu_tanh_mul, silu_mul
from penstock_engine.kernels.torch_ops import ACTIVATIONS, gate

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
Activation = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("kernel", "activation"), [(silu_mul, "silu"), (gelu_tanh_mul, "gelu_pytorch_tanh")]
)
@pytest.mark.parametrize(("num_rows", "size"), [(1, 1), (3, 100), (2, 1024), (5, 1025)])
def test_equals_the_gate_in_torch(
    num_rows: int, size: int, kernel: Activation, activation: str, dtype: torch.dtype, device: str
) -> None:  # fmt: skip
    """Includes gates of 200 and -200, far in both tails of the activation."""
    torch.manual_seed(size)
    gate_up = (torch.randn(num_rows, 2 * size, device=device) * 5).to(dtype)
    gate_up[0, 0], gate_up[-1, 0] = 200.0, -200.0
    close = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    expected = gate(ACTIVATIONS[activation], gate_up.float()).to(dtype)
    torch.testing.assert_close(kernel(gate_up), expected, **close)
