"""Normalization layers over the last dimension, each with an optional fused residual addition."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from penstock_engine.kernels.operations import operations


class RMSNorm(nn.Module):
    """RMSNorm: x / root_mean_square(x) * weight. weight: [size]."""

    weight_offset = 0.0

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self._eps = eps

    def forward(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x: [..., size]. added: is first added to x in place; None: nothing."""
        term, residual = (x, None) if added is None else (added, x)
        return operations(x.device).add_norm(
            term, residual, self.weight, self._eps, weight_offset=self.weight_offset
        )


class RMSNormPlusOne(RMSNorm):
    """RMSNorm whose stored weight is the difference from 1, as in Gemma."""

    weight_offset = 1.0


class LayerNorm(nn.Module):
    """LayerNorm: (x - mean) / standard_deviation * weight + bias. weight, bias: [size]."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))
        self._shape = (size,)
        self._eps = eps

    def forward(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x: [..., size]. added: is first added to x in place; None: nothing."""
        if added is not None:
            x.add_(added)
        return F.layer_norm(x, self._shape, self.weight, self.bias, self._eps)


# Norm classes by their name in models/registry.py.
NORMS: Mapping[str, type[RMSNorm | LayerNorm]] = {
    "rms": RMSNorm,
    "rms_plus_one": RMSNormPlusOne,
    "layer": LayerNorm,
}
