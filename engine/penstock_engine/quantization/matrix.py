"""Format-independent representation of a quantized matrix."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.errors import cannot_split_order


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """A quantized matrix of a checkpoint.

    weight[o, order[i]] = (codes[o, i] - zeros[o, g]) * scales[o, g] with g = i // group_size.
    codes: int8 or float8_e4m3fn [outputs, inputs]; with 4 bits from -8 to 7. scales: floating
    [outputs, groups]. zeros: int16 [outputs, groups]; None: 0. order: int64 [inputs]; None: 0, 1, 2, ...
    The last group may be smaller than the others. Raises ModelError if shapes do not match.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    bits: int
    group_size: int
    zeros: torch.Tensor | None = None
    order: torch.Tensor | None = None

    def __post_init__(self) -> None:
        num_groups = -(-self.codes.shape[1] // self.group_size)
        expected = (self.codes.shape[0], num_groups)
        is_right = self.scales.shape == expected
        is_right &= self.zeros is None or self.zeros.shape == expected
        is_right &= self.order is None or self.order.shape == self.codes.shape[1:]
        if not is_right:
            raise ModelError("BadWeights", "scales or zero points do not belong to their weights")

    @property
    def shape(self) -> torch.Size:
        return self.codes.shape

    def without_trivial_zeros(self) -> "QuantizedMatrix":
        """The same matrix, without zero points if all of them are 0."""
        if self.zeros is None or self.zeros.any():
            return self
        return replace(self, zeros=None)

    def to(self, device: str) -> "QuantizedMatrix":
        return replace(
            self,
            codes=self.codes.to(device),
            scales=self.scales.to(device),
            zeros=None if self.zeros is None else self.zeros.to(device),
            order=None if self.order is None else self.order.to(device),
        )

    def narrow(self, dim: int, start: int, length: int) -> "QuantizedMatrix":
        """Slice of outputs (dim 0) or inputs (dim 1), as torch.Tensor.narrow. Raises ModelError if
        inputs are reordered."""
        if dim == 0:
            rows = slice(start, start + length)
            zeros = None if self.zeros is None else self.zeros[rows]
            return replace(self, codes=self.codes[rows], scales=self.scales[rows], zeros=zeros)
        if self.order is not None:
            raise cannot_split_order()
        # Choose a group size that divides both bounds of the slice; a single group remains one.
        size = length
        if self.scales.shape[1] > 1:
            size = math.gcd(self.group_size, start, length)
        groups = torch.arange(start, start + length, size) // self.group_size
        return replace(
            self,
            codes=self.codes[:, start : start + length],
            scales=self.scales[:, groups],
            zeros=None if self.zeros is None else self.zeros[:, groups],
            group_size=size,
        )

    def dequantized(self) -> torch.Tensor:
        """The matrix in float32, [outputs, inputs]."""
        numbers = self.codes.float()
        if self.zeros is not None:
            numbers -= self._widened(self.zeros)
        numbers *= self._widened(self.scales)
        if self.order is None:
            return numbers
        return torch.empty_like(numbers).index_copy_(1, self.order, numbers)

    def _widened(self, by_group: torch.Tensor) -> torch.Tensor:
        widened = by_group.float().repeat_interleave(self.group_size, 1)
        return widened[:, : self.codes.shape[1]]


def can_join(matrices: Sequence[QuantizedMatrix]) -> bool:
    """Whether matrices have the same quantization and input order, so that they can be joined."""
    first, *others = matrices
    return all(_is_alike(first, other) for other in others)


def join(matrices: Sequence[QuantizedMatrix]) -> QuantizedMatrix:
    """Concatenate the rows of matrices for which `can_join` is true."""
    if len(matrices) == 1:
        return matrices[0]
    zeros = None
    if any(matrix.zeros is not None for matrix in matrices):
        zeros = torch.cat([_zeros(matrix) for matrix in matrices])
    return replace(
        matrices[0],
        codes=torch.cat([matrix.codes for matrix in matrices]),
        scales=torch.cat([matrix.scales for matrix in matrices]),
        zeros=zeros,
    )


def _zeros(matrix: QuantizedMatrix) -> torch.Tensor:
    if matrix.zeros is None:
        return torch.zeros_like(matrix.scales, dtype=torch.int16)
    return matrix.zeros


def _is_alike(a: QuantizedMatrix, b: QuantizedMatrix) -> bool:
    if (a.order is None) != (b.order is None):
        return False
    has_same_order = a.order is None or b.order is None or torch.equal(a.order, b.order)
    return has_same_order and (a.codes.dtype, a.bits, a.group_size, a.shape[1]) == (
        b.codes.dtype, b.bits, b.group_size, b.shape[1],
    )  # fmt: skip
