"""Normalisation over the last dimension."""

import torch
import torch.nn.functional as F
from torch import nn

from penstock_engine.kernels.operations import operations


class RMSNorm(nn.Module):
    """x / root mean square(x) * weight; weight: [size]."""

    weight_offset = 0.0

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self._eps = eps

    def forward(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """x: [..., size]. added: what x is to grow by, in place, before it is normalised."""
        term, residual = (x, None) if added is None else (added, x)
        return operations(x.device).add_norm(
            term, residual, self.weight, self._eps, weight_offset=self.weight_offset
        )


class RMSNormPlusOne(RMSNorm):
    """weight is the difference from 1."""

    weight_offset = 1.0


class LayerNorm(nn.Module):
    """(x - mean) / standard deviation * weight + bias; weight, bias: [size]."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))
        self._shape = (size,)
        self._eps = eps

    def forward(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """As RMSNorm.forward."""
        if added is not None:
            x.add_(added)
        return F.layer_norm(x, self._shape, self.weight, self.bias, self._eps)
