"""A mixture of experts: each token goes through the gated MLPs of the few that it was sent to."""

import torch

from penstock_engine.kernels.group_rows import group_rows, group_rows_reference
from penstock_engine.kernels.grouped_linear import (
    choose_block_rows,
    grouped_linear,
    grouped_linear_reference,
)
from penstock_engine.kernels.plain import Activate
from penstock_engine.kernels.silu_mul import silu_mul, silu_mul_reference


def moe_reference(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    expert_ids: torch.Tensor,
    expert_weights: torch.Tensor,
    gate: Activate = silu_mul_reference,
) -> torch.Tensor:
    """x: [tokens, hidden]; returns its shape and type.

    gate_up: [experts, 2 * size, hidden], gates first. down: [experts, hidden, size]. expert_ids:
    integers [tokens, k]; below 0: an expert of another device, whose share is left out.
    expert_weights: [tokens, k].
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
    """As moe_reference; gate: as plain.gate; gate_up and down are contiguous."""
    num_tokens, k = expert_ids.shape
    block_rows = choose_block_rows(expert_ids.numel(), len(down))
    groups = group_rows(expert_ids.flatten(), len(down), block_rows)
    hidden = gate(grouped_linear(x, gate_up, groups, rows_of_input=k))
    shares = grouped_linear(hidden, down, groups, factors=expert_weights.flatten())
    return shares.view(num_tokens, k, -1).sum(1)
