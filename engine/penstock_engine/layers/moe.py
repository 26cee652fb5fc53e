"""Mixture of experts (MoE): a router selects a few gated MLPs for each token.

Tokens are grouped by expert, so that the weights of an expert are read once for all its tokens:

    tokens          a       b       c
    their experts   2 5     0 2     2 5
    grouped         0: b    2: a b c    5: a c

The ranks of a group hold either a part of each expert's intermediate size (tensor parallel), or some
whole experts (expert parallel). All ranks compute the router, and their outputs are summed.
"""

from collections.abc import Sequence

import torch
from torch import nn

from penstock_engine.kernels.moe import moe
from penstock_engine.kernels.operations import operations
from penstock_engine.kernels.torch_ops import Activate
from penstock_engine.layers.linear import Linear, multiply
from penstock_engine.layers.parallel_group import SINGLE_RANK, ParallelGroup
from penstock_engine.quantization.linear_weight import LinearWeight


class Experts(nn.Module):
    """Weights of the experts on this rank.

    gate_up_proj: [experts, 2 * intermediate, hidden]; down_proj: [experts, hidden, intermediate]. If
    they are quantized, each is a list with one weight for each expert.
    """

    def __init__(
        self,
        num_experts: int,
        hidden_size: int,
        intermediate_size: int,
        activation: str,
        *,
        first: int = 0,
    ) -> None:
        """first: id of the first expert on this rank."""
        super().__init__()
        self.gate_up_proj: nn.Parameter | Sequence[LinearWeight] = nn.Parameter(
            torch.empty(num_experts, 2 * intermediate_size, hidden_size)
        )
        self.down_proj: nn.Parameter | Sequence[LinearWeight] = nn.Parameter(
            torch.empty(num_experts, hidden_size, intermediate_size)
        )
        self._activation = activation
        self._first = first

    @property
    def has_fixed_launches(self) -> bool:
        """Whether each step launches the same kernels. Quantized experts are multiplied one by one."""
        return isinstance(self.gate_up_proj, torch.Tensor)

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Weighted sums of the outputs of this rank's experts, [tokens, hidden].

        x: [tokens, hidden]. chosen: expert ids of each token, weights: their float32 weights, both
        [tokens, experts per token].
        """
        gate = operations(x.device).gates[self._activation]
        gate_up, down = self.gate_up_proj, self.down_proj
        if (
            operations(x.device).has_kernels
            and isinstance(gate_up, torch.Tensor)
            and isinstance(down, torch.Tensor)
        ):
            own = chosen - self._first
            own = own.masked_fill((own < 0) | (own >= len(down)), -1)
            return moe(x, gate_up, down, own, weights, gate)
        return self._one_by_one(x, chosen, weights, gate)

    def _one_by_one(
        self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor, gate: Activate
    ) -> torch.Tensor:
        end = self._first + len(self.gate_up_proj)
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=end).tolist()
        before, counts = sum(counts[: self._first]), counts[self._first : end]
        order = order[before : before + sum(counts)]
        groups = torch.split(order // chosen.shape[1], counts)
        shares = torch.split(weights.flatten()[order, None], counts)
        output = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for expert, (rows, share) in enumerate(zip(groups, shares, strict=True)):
            if len(rows):
                inner = gate(multiply(x[rows], self.gate_up_proj[expert]))
                output.index_add_(0, rows, multiply(inner, self.down_proj[expert]) * share)
        return output.to(x.dtype)


class MixtureOfExperts(nn.Module):
    """MoE layer: a router, and the experts on this rank."""

    def __init__(
        self,
        *,
        num_experts: int,
        num_per_token: int,
        hidden_size: int,
        intermediate_size: int,
        activation: str,
        renormalizes: bool,
        local_experts: range | None = None,
        group: ParallelGroup = SINGLE_RANK,
    ) -> None:
        """num_per_token: experts selected for each token. intermediate_size: of an expert, on this
        rank. renormalizes: whether the weights of a token's experts are scaled to sum to 1.
        local_experts: ids of the experts on this rank; None: all.
        """
        super().__init__()
        self.gate = Linear(hidden_size, num_experts, bias=False)
        if local_experts is None:
            local_experts = range(num_experts)
        self.experts = Experts(
            len(local_experts),
            hidden_size,
            intermediate_size,
            activation,
            first=local_experts.start,
        )
        self._group = group
        self._num_per_token = num_per_token
        self._renormalizes = renormalizes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._route(x)
        return self._group.sum(self.experts(x, chosen, weights))

    def _route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Float32 weights and ids of each token's experts, both [tokens, experts per token]."""
        weights, chosen = self.gate(x).softmax(-1, dtype=torch.float32).topk(self._num_per_token)
        if self._renormalizes:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights, chosen
