"""Mixture of experts: a router chooses a few gated MLPs for each token.

Tokens are grouped by expert, so that each expert is read once and multiplies all its tokens:

    tokens          a       b       c
    their experts   2 5     0 2     2 5
    grouped         0: b    2: a b c    5: a c

The ranks of a group have either a part of each expert's width, or some experts whole. All of them
compute the router; what their experts give is summed.
"""

from collections.abc import Sequence

import torch
from torch import nn

from penstock_engine.kernels.moe import moe
from penstock_engine.kernels.operations import operations
from penstock_engine.kernels.torch_ops import Activate
from penstock_engine.layers.group import ALONE, Group
from penstock_engine.layers.linear import Linear, multiply
from penstock_engine.quantization.hold import HeldWeight


class Experts(nn.Module):
    """gate_up_proj: [experts, 2 * intermediate, hidden]; down_proj: [experts, hidden, intermediate].

    Where they are held in fewer bits, each is a list of one weight for each expert.
    first: the number that the first of these experts has among all.
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
        super().__init__()
        self.gate_up_proj: nn.Parameter | Sequence[HeldWeight] = nn.Parameter(
            torch.empty(num_experts, 2 * intermediate_size, hidden_size)
        )
        self.down_proj: nn.Parameter | Sequence[HeldWeight] = nn.Parameter(
            torch.empty(num_experts, hidden_size, intermediate_size)
        )
        self._activation = activation
        self._first = first

    @property
    def has_fixed_launches(self) -> bool:
        """Where kernels run. Those that are held in fewer bits are multiplied one by one."""
        return isinstance(self.gate_up_proj, torch.Tensor)

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """x: [tokens, hidden]. chosen, weights: experts and their float32 shares, [tokens, per token].

        Returns the weighted sums [tokens, hidden] of what these experts give.
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
    def __init__(
        self,
        *,
        num_experts: int,
        num_per_token: int,
        hidden_size: int,
        intermediate_size: int,
        activation: str,
        normalises: bool,
        held: range | None = None,
        group: Group = ALONE,
    ) -> None:
        """normalises: the shares of a token's experts are made to sum to 1.

        held: the experts that are here; None: all. intermediate_size: how much of their width is.
        """
        super().__init__()
        self.gate = Linear(hidden_size, num_experts, bias=False)
        held = range(num_experts) if held is None else held
        self.experts = Experts(
            len(held), hidden_size, intermediate_size, activation, first=held.start
        )
        self._group = group
        self._num_per_token = num_per_token
        self._normalises = normalises

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._route(x)
        return self._group.sum(self.experts(x, chosen, weights))

    def _route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Shares, in float32, and numbers of each token's experts: [tokens, per token]."""
        shares, chosen = self.gate(x).softmax(-1, dtype=torch.float32).topk(self._num_per_token)
        if self._normalises:
            shares = shares / shares.sum(-1, keepdim=True)
        return shares, chosen
