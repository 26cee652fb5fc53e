"""MLPs of dense layers.

width: intermediate size on this rank; the ranks of a group split the intermediate size.
"""

import torch
from torch import nn

from penstock_engine.kernels.operations import operations
from penstock_engine.kernels.torch_ops import ACTIVATIONS
from penstock_engine.layers.linear import Linear
from penstock_engine.layers.parallel_group import SINGLE_RANK, ParallelGroup
from penstock_engine.layers.parallel_linear import RowParallelLinear


class GatedMLP(nn.Module):
    """Gated MLP: down(activation(gate(x)) * up(x)). gate and up are one packed product."""

    def __init__(
        self,
        hidden_size: int,
        width: int,
        activation: str,
        *,
        bias: bool,
        group: ParallelGroup = SINGLE_RANK,
    ) -> None:
        super().__init__()
        self.gate_up_proj = Linear(hidden_size, 2 * width, bias=bias)
        self.down_proj = RowParallelLinear(width, hidden_size, bias=bias, group=group)
        self._activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = operations(x.device).gates[self._activation]
        output: torch.Tensor = self.down_proj(gate(self.gate_up_proj(x)))
        return output


class PlainMLP(nn.Module):
    """MLP without a gate: down(activation(up(x)))."""

    def __init__(
        self,
        hidden_size: int,
        width: int,
        activation: str,
        *,
        bias: bool,
        group: ParallelGroup = SINGLE_RANK,
    ) -> None:
        super().__init__()
        self.up_proj = Linear(hidden_size, width, bias=bias)
        self.down_proj = RowParallelLinear(width, hidden_size, bias=bias, group=group)
        self._activate = ACTIVATIONS[activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.down_proj(self._activate(self.up_proj(x)))
        return output
