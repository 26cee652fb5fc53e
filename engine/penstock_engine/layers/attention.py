"""Data types of a step's attention, and the interface of its two implementations.

A packed batch is never one big masked product, because its cost would grow with the square of the
summed lengths. The computation is planned once per step and used by every layer:

    rows of the batch   [ single tokens, by ascending length | chunk | chunk | ... ]
    PagedAttention      [ a Triton launch                    | another launch       ]
    GatheredAttention   [ SDPA for each bucket of lengths    | SDPA  | SDPA  | ... ]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from penstock_engine.layers.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Attention parameters of a layer.

    scale: multiplies the products of queries and keys. softcap: limits scores to
    softcap * tanh(score / softcap); None: no limit. window_tokens: sliding window: a token attends to
    itself and the window_tokens - 1 before it; None: full attention.
    """

    scale: float
    softcap: float | None = None
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """New positions [start, end) of one sequence, and its block table.

    block_table covers at least [0, end), with a null block for blocks outside every sliding window.
    """

    start: int
    end: int
    block_table: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return self.end - self.start

    def first_visible(self, window_tokens: int | None) -> int:
        """The first position that the span's first token attends to."""
        return 0 if window_tokens is None else max(0, self.start - window_tokens + 1)

    def blocks(self, first: int, block_size: int) -> tuple[int, ...]:
        """The blocks that hold positions [first, end)."""
        return self.block_table[first // block_size : -(-self.end // block_size)]


@dataclass(frozen=True, slots=True)
class QKV:
    """Queries, keys and values of a batch's tokens.

    q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim].
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor

    def select(self, rows: slice) -> "QKV":
        """Queries, keys and values of a range of tokens."""
        return QKV(self.q[rows], self.k[rows], self.v[rows])


class StepAttention(Protocol):
    """Grouped-query attention over one step's batch; called for one layer after another.

    A module of another kind of attention does not call it, but computes from its fields. It is a
    GatheredAttention if operations().has_kernels is false, with the `spans` of sequences; otherwise a
    PagedAttention, with what a kernel reads: `batch` of the single tokens and `chunks` of the others, or
    `batch` alone. Both have `slots`, where the tokens of the step are written to the cache.
    """

    def __call__(self, heads: QKV, cache: KVCache, shape: AttentionShape) -> torch.Tensor:
        """Write keys and values to the cache, and attend. Returns [tokens, heads, head_dim]."""
        ...


def pad_tables(
    tables: Sequence[tuple[int, ...]],
    padding: int = 0,
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Pad block tables to the longest. Returns int64 [tables, longest].

    padding: the block id to pad with. The kernels do not read it. Code that reads it with weight 0
    needs a block without NaN.
    """
    padded = np.full((len(tables), max(map(len, tables))), padding, dtype=np.int64)
    for row, table in enumerate(tables):
        padded[row, : len(table)] = table
    return padded
