"""Products of which each rank of a group has a part.

cut by outputs   a plain Linear with fewer outputs: each rank has some columns of the result
cut by inputs    SummedLinear: each rank has a term of the result
cut by tokens    SplitEmbedding: each rank knows some of the vocabulary
"""

import torch
import torch.nn.functional as F

from penstock_engine.layers.group import Group
from penstock_engine.layers.linear import Embedding, Linear


class SummedLinear(Linear):
    """The sum over the group of x @ weight.T, with the bias of its first rank."""

    def __init__(self, num_inputs: int, num_outputs: int, *, bias: bool, group: Group) -> None:
        super().__init__(num_inputs, num_outputs, bias=bias and group.rank == 0)
        self._group = group

    def term(self, x: torch.Tensor) -> torch.Tensor:
        """What this rank has of the sum."""
        return super().forward(x)

    def total(self, term: torch.Tensor) -> torch.Tensor:
        return self._group.sum(term)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.total(self.term(x))


class SplitEmbedding(Embedding):
    """Rows `kept` of the vocabulary. A token of another rank's counts as 0 here."""

    def __init__(self, kept: range, size: int, group: Group) -> None:
        super().__init__(len(kept), size)
        self._first = kept.start
        self._group = group

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        if self._group.size == 1:
            return super().forward(token_ids)
        rows = token_ids - self._first
        is_absent = (rows < 0) | (rows >= len(self.weight))
        known = F.embedding(rows.masked_fill(is_absent, 0), self.weight)
        return self._group.sum(known.masked_fill_(is_absent[:, None], 0))
