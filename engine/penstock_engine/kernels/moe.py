"""Mixture-of-experts MLP: each token is computed by the gated MLPs of its k experts."""

import torch

from penstock_engine.kernels.group_rows import group_rows
from penstock_engine.kernels.grouped_linear import choose_block_rows, grouped_linear
from penstock_engine.kernels.torch_ops import Activate


def moe(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    expert_ids: torch.Tensor,
    expert_weights: torch.Tensor,
    gate: Activate,
) -> torch.Tensor:
    """Weighted sum of the experts' MLPs for each token (Triton). Returns a tensor of x's shape and dtype.

    x: [tokens, hidden]. gate_up: [experts, 2 * size, hidden], gates first, down: [experts, hidden,
    size]; both contiguous. expert_ids: integers [tokens, k]; negative: an expert of another rank, which
    is left out of the sum. expert_weights: [tokens, k]. gate: activation of gates times up, see
    torch_ops.gate.
    """
    num_tokens, k = expert_ids.shape
    block_rows = choose_block_rows(expert_ids.numel(), len(down))
    groups = group_rows(expert_ids.flatten(), len(down), block_rows)
    hidden = gate(grouped_linear(x, gate_up, groups, rows_of_input=k))
    shares = grouped_linear(hidden, down, groups, factors=expert_weights.flatten())
    return shares.view(num_tokens, k, -1).sum(1)
