"""A quantised matrix in one plain form, whatever format it came in."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from penstock_engine.core.errors import ModelError


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """weight[o, order[i]] = (codes[o, i] - zeros[o, g]) * scales[o, g], g = i // group_size.

    codes: int8 or float8_e4m3fn [outputs, inputs]; of 4 bits: -8 to 7.
    scales: floating [outputs, groups]; zeros: int16 of the same shape, None: 0.
    order: int64 [inputs], None: 0, 1, 2, ... The last group may be shorter than the others.
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

    def without_idle_zeros(self) -> "QuantizedMatrix":
        """The same, without zero points where all of them are 0."""
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
        """Some outputs (dim 0) or inputs (dim 1) of it, as Tensor.narrow has them."""
        if dim == 0:
            rows = slice(start, start + length)
            zeros = None if self.zeros is None else self.zeros[rows]
            return replace(self, codes=self.codes[rows], scales=self.scales[rows], zeros=zeros)
        if self.order is not None:
            raise ModelError(
                "CannotSplit",
                "weights in the order of their activations cannot be split by inputs: set "
                "tensor_parallel_size to 1, or take a checkpoint without desc_act",
            )
        # Groups so small that the cut runs between them; one group remains one.
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
        """float32 [outputs, inputs]."""
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
    first, *others = matrices
    return all(_is_alike(first, other) for other in others)


def join(matrices: Sequence[QuantizedMatrix]) -> QuantizedMatrix:
    """Their rows one after another; they must be alike."""
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
