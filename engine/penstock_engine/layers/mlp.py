"""What a layer does with each token by itself.

width: numbers of a token between the products, of which each rank of the group has its own.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from penstock_engine.layers.group import ALONE, Group
from penstock_engine.layers.linear import Linear
from penstock_engine.layers.partial import SummedLinear

Activate = Callable[[torch.Tensor], torch.Tensor]

# By the names of config.json; gelu_new is the tanh approximation written out.
ACTIVATIONS: Mapping[str, Activate] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}


class GatedMLP(nn.Module):
    """down(activation(gate(x)) * up(x)); gate and up are one product."""

    def __init__(
        self, hidden_size: int, width: int, activation: str, *, bias: bool, group: Group = ALONE
    ) -> None:
        super().__init__()
        self.gate_up_proj = Linear(hidden_size, 2 * width, bias=bias)
        self.down_proj = SummedLinear(width, hidden_size, bias=bias, group=group)
        self._activate = ACTIVATIONS[activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        output: torch.Tensor = self.down_proj(self._activate(gate) * up)
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
