"""What a layer does with each token by itself.

width: numbers of a token between the products, of which each rank of the group has its own.
"""

import torch
from torch import nn

from penstock_engine.kernels.operations import operations
from penstock_engine.kernels.torch_ops import ACTIVATIONS
from penstock_engine.layers.group import ALONE, Group
from penstock_engine.layers.linear import Linear
from penstock_engine.layers.partial import SummedLinear


class GatedMLP(nn.Module):
    """down(activation(gate(x)) * up(x)); gate and up are one product."""

    def __init__(
        self, hidden_size: int, width: int, activation: str, *, bias: bool, group: Group = ALONE
    ) -> None:
        super().__init__()
        self.gate_up_proj = Linear(hidden_size, 2 * width, bias=bias)
        self.down_proj = SummedLinear(width, hidden_size, bias=bias, group=group)
        self._activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = operations(x.device).gates[self._activation]
        output: torch.Tensor = self.down_proj(gate(self.gate_up_proj(x)))
        return output


class PlainMLP(nn.Module):
    """down(activation(up(x)))."""

    def __init__(
        self, hidden_size: int, width: int, activation: str, *, bias: bool, group: Group = ALONE
    ) -> None:
        super().__init__()
        self.up_proj = Linear(hidden_size, width, bias=bias)
        self.down_proj = SummedLinear(width, hidden_size, bias=bias, group=group)
        self._activate = ACTIVATIONS[activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.down_proj(self._activate(self.up_proj(x)))
        return output
