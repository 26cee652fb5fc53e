"""Tests of the mixture-of-experts kernel against a weighted sum of MLPs."""

import pytest
import torch
import torch.nn.functional as F
from tests.support.engine.kernel_references import moe_reference

from penstock_engine.kernels.grouped_linear import choose_block_rows
from penstock_engine.kernels.moe import moe
from penstock_engine.kernels.silu_mul import silu_mul

TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 5e-2}


def mixture(
    num_tokens: int, k: int, num_experts: int, hidden: int, size: int,
    dtype: torch.dtype, device: str,
) -> list[torch.Tensor]:  # fmt: skip
    torch.manual_seed(num_tokens)
    x = torch.randn(num_tokens, hidden, device=device).to(dtype)
    gate_up = (torch.randn(num_experts, 2 * size, hidden, device=device) / hidden**0.5).to(dtype)
    down = (torch.randn(num_experts, hidden, size, device=device) / size**0.5).to(dtype)
    scores = torch.randn(num_tokens, num_experts, device=device).softmax(-1)
    weights, ids = scores.topk(k)
    return [x, gate_up, down, ids, weights]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 64, 16), (1, 2, 8, 100, 33), (37, 3, 5, 130, 70), (70, 2, 2, 1100, 64)]
)
def test_equals_the_reference(
    shape: tuple[int, int, int, int, int], dtype: torch.dtype, device: str
) -> None:
    """Routing in which some shares belong to experts of other devices."""
    x, gate_up, down, ids, weights = mixture(*shape, dtype, device)
    ids[::3, 0] = -1
    expected = moe_reference(x, gate_up, down, ids, weights)
    actual = moe(x, gate_up, down, ids, weights, silu_mul)
    torch.testing.assert_close(actual, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_the_reference_is_a_weighted_sum_of_mlps() -> None:
    x, gate_up, down, ids, weights = mixture(6, 2, 4, 32, 24, torch.float32, "cpu")
    expected = torch.zeros_like(x)
    for token, (experts, shares) in enumerate(zip(ids, weights, strict=True)):
        for expert, share in zip(experts, shares, strict=True):
            gate, up = F.linear(x[token], gate_up[expert]).chunk(2)
            expected[token] += share * F.linear(F.silu(gate) * up, down[expert])
    torch.testing.assert_close(moe_reference(x, gate_up, down, ids, weights), expected)


@pytest.mark.parametrize(
    ("num_rows", "num_groups", "block_rows"), [(1, 8, 16), (8 * 64, 8, 64), (10**6, 8, 64)]
)
def test_rows_multiplied_at_once(num_rows: int, num_groups: int, block_rows: int) -> None:
    assert choose_block_rows(num_rows, num_groups) == block_rows
