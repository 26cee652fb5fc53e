"""What attends to what: the plain data of a step's attention, and what computes it.

A packed batch is never one big masked product: its cost would grow with the square of the summed
lengths. What computes it is planned once a step and used by every layer:

    rows of the batch   [ single tokens, by rising length | chunk | chunk | ... ]
    PagedAttention      [ one Triton kernel reads the cache where it lies       ]
    GatheredAttention   [ SDPA for each bucket of lengths | SDPA  | SDPA  | ... ]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from penstock_engine.layers.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What a layer's scores go through.

    scale: factor of the products of queries and keys. softcap: then x becomes
    softcap * tanh(x / softcap); None: it stays x. window_tokens: a token sees itself and the
    window_tokens - 1 before it; None: all before it.
    """

    scale: float
    softcap: float | None = None
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Positions [start, end) of one sequence.

    block_table covers [0, end) at least, but names any block where no layer sees.
    """

    start: int
    end: int
    block_table: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return self.end - self.start

    def first_visible(self, window_tokens: int | None) -> int:
        """The first position that the span's first token sees."""
        return 0 if window_tokens is None else max(0, self.start - window_tokens + 1)

    def blocks(self, first: int, block_size: int) -> tuple[int, ...]:
        """Those that hold positions [first, end)."""
        return self.block_table[first // block_size : -(-self.end // block_size)]


@dataclass(frozen=True, slots=True)
class Heads:
    """Of tokens of a batch. q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim]."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor

    def of(self, rows: slice) -> "Heads":
        return Heads(self.q[rows], self.k[rows], self.v[rows])


class StepAttention(Protocol):
    """Attention of one step's batch, in one layer after another."""

    def __call__(self, heads: Heads, cache: KVCache, shape: AttentionShape) -> torch.Tensor:
        """Writes k and v to the cache. Returns [tokens, heads, head_dim]."""
        ...


def pad_tables(
    tables: Sequence[tuple[int, ...]],
    padding: int = 0,
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Block tables as int64 [tables, longest]. padding: a block number to fill up with.

    The kernels do not read padding. Code that reads it, with weight 0, needs a block without NaN.
    """
    padded = np.full((len(tables), max(map(len, tables))), padding, dtype=np.int64)
    for row, table in enumerate(tables):
        padded[row, : len(table)] = table
    return padded
