"""Describes which part of a tensor one rank holds. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar


@dataclass(frozen=True, slots=True)
class ShardRange:
    """A rank's contiguous range of items (heads, widths, experts, tokens) of a dimension.

    local: the rank's range. total: number of items on all ranks.
    """

    local: range
    total: int

    def __len__(self) -> int:
        return len(self.local)

    def times(self, size: int) -> ShardRange:
        """The same range in units of which each item has `size`, as the rows of a head."""
        return ShardRange(range(self.local.start * size, self.local.stop * size), self.total * size)


def split_evenly(total: int, index: int, count: int) -> ShardRange:
    """The index-th of `count` consecutive ranges of nearly equal length that cover [0, total)."""
    return ShardRange(range(total * index // count, total * (index + 1) // count), total)


def split_heads(num_heads: int, index: int, num_ranks: int) -> ShardRange:
    """Heads of a rank. If there are more ranks than heads, several ranks have the same one."""
    if num_ranks <= num_heads:
        return split_evenly(num_heads, index, num_ranks)
    head = num_heads * index // num_ranks
    return ShardRange(range(head, head + 1), num_heads)


class Sliceable(Protocol):
    """A tensor or quantized matrix that can be sliced as torch.Tensor.narrow does."""

    @property
    def shape(self) -> Sequence[int]: ...

    def narrow(self, dim: int, start: int, length: int) -> Self: ...


Matrix = TypeVar("Matrix", bound=Sliceable)


@dataclass(frozen=True, slots=True)
class TensorShard:
    """The part of a matrix that a rank holds.

    dim: the dimension that is split, 0 for outputs, 1 for inputs. ranges: one for each of the
    projections that are packed one after another along dim.
    """

    dim: int
    ranges: tuple[ShardRange, ...]

    @property
    def num_local(self) -> int:
        """Size of dim on this rank."""
        return sum(map(len, self.ranges))

    @property
    def num_total(self) -> int:
        """Size of dim on all ranks together."""
        return sum(shard_range.total for shard_range in self.ranges)

    def axis(self, shape: Sequence[int]) -> int:
        """The index of dim in the shape of a vector of outputs, a matrix, or a stack of matrices."""
        return self.dim + max(0, len(shape) - 2)

    def full_shape(self, shape: Sequence[int]) -> list[int]:
        """The shape of the full tensor whose part has `shape`."""
        sizes = list(shape)
        sizes[self.axis(shape)] = self.num_total
        return sizes

    def split(self, matrix: Matrix) -> list[Matrix]:
        """The rank's slices of a full matrix, one for each range; the matrix itself if it has all."""
        if self.num_local == self.num_total:
            return [matrix]
        axis = self.axis(matrix.shape)
        slices, first = [], 0
        for shard_range in self.ranges:
            slices.append(matrix.narrow(axis, first + shard_range.local.start, len(shard_range)))
            first += shard_range.total
        return slices
