"""Collective operations of the ranks that share the layers of a pipeline stage."""

from collections.abc import Sequence
from typing import Protocol

import torch


class ParallelGroup(Protocol):
    """A tensor-parallel group. All ranks call the same methods in the same order, with equal shapes."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """All-reduce: the sum of all ranks' x, on every rank. x may be overwritten."""
        ...

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        """Gather on rank 0: all ranks' x concatenated along the last dimension. Other ranks return x.

        widths: sizes of the last dimension, by rank.
        """
        ...


class SingleRank:
    """A group of one rank, which holds all of the layers."""

    rank = 0
    size = 1

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        return x


SINGLE_RANK = SingleRank()
