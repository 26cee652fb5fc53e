"""The ranks among which the layers of a stage are cut, as the layers see them."""

from collections.abc import Sequence
from typing import Protocol

import torch


class Group(Protocol):
    """Every rank of it calls the same methods in the same order, with tensors of equal shape."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """The same sum on each rank; x is lost."""
        ...

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        """Rank 0: every rank's x side by side along the last dimension. The others: x.

        widths: of the last dimension, by rank.
        """
        ...


class Alone:
    """A group of one rank, which has all of the layers."""

    rank = 0
    size = 1

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        return x


ALONE = Alone()
