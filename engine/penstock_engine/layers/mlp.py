"""What a layer does with each token by itself."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from penstock_engine.layers.linear import Linear

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
        self, hidden_size: int, intermediate_size: int, activation: str, *, bias: bool
    ) -> None:
        super().__init__()
        self.gate_up_proj = Linear(hidden_size, 2 * intermediate_size, bias=bias)
        self.down_proj = Linear(intermediate_size, hidden_size, bias=bias)
        self._activate = ACTIVATIONS[activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        output: torch.Tensor = self.down_proj(self._activate(gate) * up)
        return output


class PlainMLP(nn.Module):
    """down(activation(up(x)))."""

    def __init__(
        self, hidden_size: int, intermediate_size: int, activation: str, *, bias: bool
    ) -> None:
        super().__init__()
        self.up_proj = Linear(hidden_size, intermediate_size, bias=bias)
        self.down_proj = Linear(intermediate_size, hidden_size, bias=bias)
        self._activate = ACTIVATIONS[activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.down_proj(self._activate(self.up_proj(x)))
        return output
