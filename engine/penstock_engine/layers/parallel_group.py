"""Collective operations of the ranks that share the layers of a pipeline stage."""

from collections.abc import Sequence

import torch


class ParallelGroup:
    """A tensor-parallel group, here of one rank, which holds all of the layers.

    All ranks of a group call the same methods in the same order, with equal shapes.
    """

    rank = 0
    size = 1

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """All-reduce: the sum of all ranks' x, on every rank. x may be overwritten."""
        return x

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        """Gather on rank 0: all ranks' x concatenated along the last dimension. Other ranks return x.

        widths: sizes of the last dimension, by rank.
        """
        return x


SINGLE_RANK = ParallelGroup()
