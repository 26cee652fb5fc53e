"""Mixture-of-experts MLP: each token is computed by the gated MLPs of its k experts."""

import torch

from penstock_engine.kernels.group_rows import group_rows, group_rows_reference
from penstock_engine.kernels.grouped_linear import (
    choose_block_rows,
    grouped_linear,
    grouped_linear_reference,
)
from penstock_engine.kernels.silu_mul import silu_mul, silu_mul_reference
from penstock_engine.kernels.torch_ops import Activate


def moe_reference(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    expert_ids: torch.Tensor,
    expert_weights: torch.Tensor,
    gate: Activate = silu_mul_reference,
) -> torch.Tensor:
    """Weighted sum of the experts' MLPs for each token. Returns a tensor of x's shape and dtype.

    x: [tokens, hidden]. gate_up: [experts, 2 * size, hidden], gates first. down: [experts, hidden,
    size]. expert_ids: integers [tokens, k]; negative: an expert of another rank, which is left out of
    the sum. expert_weights: [tokens, k]. gate: activation of gates times up, see torch_ops.gate.
    """
    num_tokens, k = expert_ids.shape
    groups = group_rows_reference(expert_ids.flatten(), len(down), 16)
    hidden = gate(grouped_linear_reference(x, gate_up, groups, rows_of_input=k))
    shares = grouped_linear_reference(hidden, down, groups, factors=expert_weights.flatten())
    return shares.view(num_tokens, k, -1).sum(1)


def moe(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    expert_ids: torch.Tensor,
    expert_weights: torch.Tensor,
    gate: Activate = silu_mul,
) -> torch.Tensor:
    """Weighted sum of the experts' MLPs for each token (Triton); see moe_reference.

    gate_up and down must be contiguous.
    """
    num_tokens, k = expert_ids.shape
    block_rows = choose_block_rows(expert_ids.numel(), len(down))
    groups = group_rows(expert_ids.flatten(), len(down), block_rows)
    hidden = gate(grouped_linear(x, gate_up, groups, rows_of_input=k))
    shares = grouped_linear(hidden, down, groups, factors=expert_weights.flatten())
    return shares.view(num_tokens, k, -1).sum(1)
