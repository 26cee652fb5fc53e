"""Normalisation over the last dimension."""

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    """x / root mean square(x) * weight; weight: [size]."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self._shape = (size,)
        self._eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self._shape, self.weight, self._eps)


class RMSNormPlusOne(RMSNorm):
    """weight is the difference from 1. The sum is float32: 1 + weight has no room in bfloat16."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = 1.0 + self.weight.float()
        return F.rms_norm(x.float(), self._shape, weight, self._eps).to(x.dtype)


class LayerNorm(nn.Module):
    """(x - mean) / standard deviation * weight + bias; weight, bias: [size]."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))
        self._shape = (size,)
        self._eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, self._shape, self.weight, self.bias, self._eps)
