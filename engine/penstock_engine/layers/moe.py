"""Mixture of experts: a router chooses a few gated MLPs for each token.

Tokens are grouped by expert, so that each expert is read once and multiplies all its tokens:

    tokens          a       b       c
    their experts   2 5     0 2     2 5
    grouped         0: b    2: a b c    5: a c
"""

from collections.abc import Sequence

import torch
from torch import nn

from penstock_engine.layers.linear import Linear, multiply
from penstock_engine.layers.mlp import ACTIVATIONS
from penstock_engine.quantization.hold import HeldWeight


class Experts(nn.Module):
    """gate_up_proj: [experts, 2 * intermediate, hidden]; down_proj: [experts, hidden, intermediate].

    Where they are held in fewer bits, each is a list of one weight for each expert.
    """

    def __init__(
        self, num_experts: int, hidden_size: int, intermediate_size: int, activation: str
    ) -> None:
        super().__init__()
        self.gate_up_proj: nn.Parameter | Sequence[HeldWeight] = nn.Parameter(
            torch.empty(num_experts, 2 * intermediate_size, hidden_size)
        )
        self.down_proj: nn.Parameter | Sequence[HeldWeight] = nn.Parameter(
            torch.empty(num_experts, hidden_size, intermediate_size)
        )
        self._activate = ACTIVATIONS[activation]

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """x: [tokens, hidden]. chosen, weights: experts and their float32 shares, [tokens, per token].

        Returns the weighted sums [tokens, hidden].
        """
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self.gate_up_proj)).tolist()
        groups = torch.split(order // chosen.shape[1], counts)
        shares = torch.split(weights.flatten()[order, None], counts)
        output = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for expert, (rows, share) in enumerate(zip(groups, shares, strict=True)):
            if len(rows):
                output.index_add_(0, rows, self._expert(expert, x[rows]) * share)
        return output.to(x.dtype)

    def _expert(self, expert: int, x: torch.Tensor) -> torch.Tensor:
        gate, up = multiply(x, self.gate_up_proj[expert]).chunk(2, dim=-1)
        return multiply(self._activate(gate) * up, self.down_proj[expert])


class MixtureOfExperts(nn.Module):
    def __init__(
        self,
        *,
        num_experts: int,
        num_per_token: int,
        hidden_size: int,
        intermediate_size: int,
        activation: str,
        normalises: bool,
    ) -> None:
        """normalises: the shares of a token's experts are made to sum to 1."""
        super().__init__()
        self.gate = Linear(hidden_size, num_experts, bias=False)
        self.experts = Experts(num_experts, hidden_size, intermediate_size, activation)
        self._num_per_token = num_per_token
        self._normalises = normalises

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._route(x)
        output: torch.Tensor = self.experts(x, chosen, weights)
        return output

    def _route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Shares, in float32, and numbers of each token's experts: [tokens, per token]."""
        shares, chosen = self.gate(x).softmax(-1, dtype=torch.float32).topk(self._num_per_token)
        if self._normalises:
            shares = shares / shares.sum(-1, keepdim=True)
        return shares, chosen
