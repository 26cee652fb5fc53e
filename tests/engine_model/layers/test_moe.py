"""Tests that grouping tokens by expert changes no result."""

import pytest
import torch
import torch.nn.functional as F

from penstock_engine.layers.moe import MixtureOfExperts

HIDDEN, INTERMEDIATE = 16, 24


def mixture(num_experts: int, num_per_token: int, *, renormalizes: bool) -> MixtureOfExperts:
    module = MixtureOfExperts(
        num_experts=num_experts, num_per_token=num_per_token, hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE, activation="silu", renormalizes=renormalizes,
    )  # fmt: skip
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def by_definition(module: MixtureOfExperts, x: torch.Tensor, *, renormalizes: bool) -> torch.Tensor:
    """Reference: each token through all experts, with a share of 0 for those not chosen."""
    shares = (x @ module.gate.weight.T).softmax(-1)
    chosen = shares.topk(module._num_per_token).indices
    kept = torch.zeros_like(shares)
    kept[chosen] = shares[chosen] / (shares[chosen].sum() if renormalizes else 1)
    output = torch.zeros(HIDDEN)
    for share, gate_up, down in zip(
        kept, module.experts.gate_up_proj, module.experts.down_proj, strict=True
    ):
        gate, up = (gate_up @ x).chunk(2)
        output += share * (down @ (F.silu(gate) * up))
    return output


@pytest.mark.parametrize("renormalizes", [False, True])
@pytest.mark.parametrize(
    ("num_experts", "num_per_token", "num_tokens"), [(1, 1, 5), (4, 4, 3), (8, 2, 1), (64, 8, 40)]
)
@torch.inference_mode()
def test_grouping_by_expert_changes_no_token(
    num_experts: int, num_per_token: int, num_tokens: int, renormalizes: bool
) -> None:
    torch.manual_seed(num_experts)
    module = mixture(num_experts, num_per_token, renormalizes=renormalizes)
    x = torch.randn(num_tokens, HIDDEN)
    expected = torch.stack([by_definition(module, row, renormalizes=renormalizes) for row in x])
    torch.testing.assert_close(module(x), expected, atol=1e-5, rtol=1e-5)
