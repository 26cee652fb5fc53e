"""Which part of a matrix one rank holds. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar


@dataclass(frozen=True, slots=True)
class Portion:
    """What is kept of `whole` things."""

    kept: range
    whole: int

    def __len__(self) -> int:
        return len(self.kept)

    def times(self, size: int) -> Portion:
        """The same, counted in things of which each of these has `size`."""
        return Portion(range(self.kept.start * size, self.kept.stop * size), self.whole * size)


class Sliceable(Protocol):
    """A tensor, or a matrix that is held in fewer bits."""

    @property
    def shape(self) -> Sequence[int]: ...

    def narrow(self, dim: int, start: int, length: int) -> Self: ...


Matrix = TypeVar("Matrix", bound=Sliceable)


@dataclass(frozen=True, slots=True)
class Cut:
    """What is kept of a matrix: portions of the parts that lie one after another in it.

    dim: along which they lie, 0 outputs, 1 inputs.
    """

    dim: int
    portions: tuple[Portion, ...]

    @property
    def num_kept(self) -> int:
        return sum(map(len, self.portions))

    @property
    def num_whole(self) -> int:
        return sum(portion.whole for portion in self.portions)

    def axis(self, shape: Sequence[int]) -> int:
        """The same dim of a vector of outputs, a matrix, or a stack of matrices."""
        return self.dim + max(0, len(shape) - 2)

    def whole_shape(self, shape: Sequence[int]) -> list[int]:
        """Of that from which this cuts one of `shape`."""
        sizes = list(shape)
        sizes[self.axis(shape)] = self.num_whole
        return sizes

    def of(self, matrix: Matrix) -> list[Matrix]:
        """The portions, in their order; all of it in one where nothing is cut away."""
        if self.num_kept == self.num_whole:
            return [matrix]
        axis = self.axis(matrix.shape)
        kept, first = [], 0
        for portion in self.portions:
            kept.append(matrix.narrow(axis, first + portion.kept.start, len(portion)))
            first += portion.whole
        return kept
