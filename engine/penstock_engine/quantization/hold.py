"""From what was read to what multiplies."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from penstock_engine.quantization.eight_bits import Float8Weight, Int8Weight
from penstock_engine.quantization.int4 import Int4Weight
from penstock_engine.quantization.matrix import QuantizedMatrix, can_join, join
from penstock_engine.quantization.weight import QuantizedWeight

Matrix = torch.Tensor | QuantizedMatrix


class JoinedWeight(nn.Module):
    """The rows of several weights one after another, which differ in how they are held."""

    def __init__(self, parts: Sequence[QuantizedWeight | torch.Tensor]) -> None:
        super().__init__()
        self._names = [f"part{index}" for index in range(len(parts))]
        for name, part in zip(self._names, parts, strict=True):
            if isinstance(part, torch.Tensor):
                self.register_buffer(name, part)
            else:
                self.add_module(name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs]. Returns [..., outputs]."""
        parts = (getattr(self, name) for name in self._names)
        return torch.cat(
            [F.linear(x, part) if isinstance(part, torch.Tensor) else part(x) for part in parts], -1
        )


HeldWeight = QuantizedWeight | JoinedWeight


def hold(matrices: Sequence[Matrix], dtype: torch.dtype, device: str) -> HeldWeight:
    """One weight that has their rows one after another. dtype: the model's number type.

    Matrices of 4 bits become Int4Weight, of 8 bits Int8Weight, of float8 Float8Weight: each number
    is what the checkpoint says, up to one rounding of scales to dtype. Where they are not alike, each
    is held in its own way.
    """
    quantized = [matrix for matrix in matrices if isinstance(matrix, QuantizedMatrix)]
    if 0 < len(quantized) == len(matrices) and can_join(quantized):
        return _weight(join(quantized), dtype, device)
    return JoinedWeight(
        [
            _weight(m, dtype, device) if isinstance(m, QuantizedMatrix) else m.to(device, dtype)
            for m in matrices
        ]
    )


def _weight(matrix: QuantizedMatrix, dtype: torch.dtype, device: str) -> QuantizedWeight:
    matrix = matrix.to(device)
    if matrix.codes.dtype == torch.float8_e4m3fn:
        return Float8Weight(matrix, dtype)
    return (Int4Weight if matrix.bits == 4 else Int8Weight)(matrix, dtype)
