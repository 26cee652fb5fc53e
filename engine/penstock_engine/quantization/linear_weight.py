"""Builds the quantized weight module of a linear layer from matrices of a checkpoint."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from penstock_engine.quantization.eight_bits import Float8Weight, Int8Weight
from penstock_engine.quantization.int4 import Int4Weight
from penstock_engine.quantization.matrix import QuantizedMatrix, can_join, join
from penstock_engine.quantization.weight import QuantizedWeight

Matrix = torch.Tensor | QuantizedMatrix


class ConcatenatedWeight(nn.Module):
    """Concatenation of the rows of several weights with different quantization."""

    def __init__(self, parts: Sequence[QuantizedWeight | torch.Tensor]) -> None:
        super().__init__()
        self._names = [f"part{index}" for index in range(len(parts))]
        for name, part in zip(self._names, parts, strict=True):
            if isinstance(part, torch.Tensor):
                self.register_buffer(name, part)
            else:
                self.add_module(name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply by all weights and concatenate. x: [..., inputs]. Returns [..., outputs]."""
        parts = (getattr(self, name) for name in self._names)
        return torch.cat(
            [F.linear(x, part) if isinstance(part, torch.Tensor) else part(x) for part in parts], -1
        )


LinearWeight = QuantizedWeight | ConcatenatedWeight


def make_linear_weight(matrices: Sequence[Matrix], dtype: torch.dtype, device: str) -> LinearWeight:
    """Build one weight from the rows of all matrices, in order.

    4-bit matrices become Int4Weight, 8-bit ones Int8Weight, float8 Float8Weight. Each element has the
    checkpoint's value, up to one rounding of scales to dtype. If the matrices differ in quantization,
    each becomes its own weight. dtype: of the model.
    """
    quantized = [matrix for matrix in matrices if isinstance(matrix, QuantizedMatrix)]
    if 0 < len(quantized) == len(matrices) and can_join(quantized):
        return _weight(join(quantized), dtype, device)
    return ConcatenatedWeight(
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
