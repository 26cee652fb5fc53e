"""Tensor-parallel linear and embedding layers.

split by outputs      a plain Linear with fewer outputs: each rank has some columns of the result
split by inputs       RowParallelLinear: each rank has a partial sum of the result
split by vocabulary   VocabParallelEmbedding: each rank has the rows of some tokens
"""

import torch
import torch.nn.functional as F

from penstock_engine.layers.linear import Embedding, Linear
from penstock_engine.layers.parallel_group import ParallelGroup


class RowParallelLinear(Linear):
    """Linear layer split by inputs: the sum over the group of x @ weight.T, with rank 0's bias."""

    def __init__(
        self, num_inputs: int, num_outputs: int, *, bias: bool, group: ParallelGroup
    ) -> None:
        super().__init__(num_inputs, num_outputs, bias=bias and group.rank == 0)
        self._group = group

    def partial_sum(self, x: torch.Tensor) -> torch.Tensor:
        """Partial result of this rank, before the all-reduce."""
        return super().forward(x)

    def all_reduce(self, partial_sum: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' partial sums."""
        return self._group.sum(partial_sum)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.all_reduce(self.partial_sum(x))


class VocabParallelEmbedding(Embedding):
    """Embedding split by vocabulary: rank rows are summed, and tokens of other ranks count as 0."""

    def __init__(self, token_ids: range, size: int, group: ParallelGroup) -> None:
        """token_ids: those whose rows this rank holds."""
        super().__init__(len(token_ids), size)
        self._first = token_ids.start
        self._group = group

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        if self._group.size == 1:
            return super().forward(token_ids)
        rows = token_ids - self._first
        is_absent = (rows < 0) | (rows >= len(self.weight))
        known = F.embedding(rows.masked_fill(is_absent, 0), self.weight)
        return self._group.sum(known.masked_fill_(is_absent[:, None], 0))
