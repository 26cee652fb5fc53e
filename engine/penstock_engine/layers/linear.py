"""Linear and embedding modules whose weights a checkpoint fills in.

torch's own modules initialize weights randomly, which on the meta device costs seconds and 200 MB:
the first random number there imports torch's compiler.
"""

import torch
import torch.nn.functional as F
from torch import nn

from penstock_engine.quantization.linear_weight import LinearWeight


def multiply(
    x: torch.Tensor, weight: torch.Tensor | LinearWeight, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute x @ weight.T + bias. weight: [outputs, inputs], a tensor or a quantized weight."""
    if isinstance(weight, torch.Tensor):
        return F.linear(x, weight, bias)
    product: torch.Tensor = weight(x)
    return product if bias is None else product + bias


class Linear(nn.Module):
    """Linear layer, x @ weight.T + bias. weight: [outputs, inputs]."""

    def __init__(self, num_inputs: int, num_outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.num_inputs = num_inputs
        self.num_outputs = num_outputs
        self.weight: nn.Parameter | LinearWeight = nn.Parameter(
            torch.empty(num_outputs, num_inputs)
        )
        self.bias = nn.Parameter(torch.empty(num_outputs)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return multiply(x, self.weight, self.bias)


class Embedding(nn.Module):
    """Token embedding: a row of weight [vocabulary, size] for each token id."""

    def __init__(self, vocab_size: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, size))

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(token_ids, self.weight)
