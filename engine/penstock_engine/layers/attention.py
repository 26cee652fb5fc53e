"""Causal attention of a mixed batch over the paged cache.

A packed batch is never one big masked product: its cost would grow with the square of the summed
lengths. Sequences with one new token go together, the others one by one:

    rows of the batch   [ single tokens, by rising length | chunk | chunk | ... ]
    CUDA                [ one paged_decode kernel         | SDPA  | SDPA  | ... ]
    CPU                 [ SDPA for each bucket of lengths | SDPA  | SDPA  | ... ]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F

from penstock_engine.kernels.kv_write import kv_write, kv_write_reference
from penstock_engine.kernels.paged_decode import paged_decode

# Below this length, padding costs less than one more call.
MIN_BUCKET_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Span:
    """Positions [start, end) of one sequence; block_table covers [0, end) at least."""

    start: int
    end: int
    block_table: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return self.end - self.start


class RowAttention(Protocol):
    """Attention of one range of the batch's rows."""

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """All of shape [rows, heads or kv_heads, head_dim]; cache holds k and v already."""
        ...


class StepAttention:
    """How one step attends: planned once, used by every layer."""

    def __init__(
        self,
        spans: Sequence[Span],
        slots: torch.Tensor,
        *,
        cache_shape: torch.Size,
        dtype: torch.dtype,
        use_kernels: bool,
    ) -> None:
        """spans: single tokens by rising end, then chunks. slots: int64 [tokens].

        cache_shape: of one layer's cache, [2, blocks, block_size, kv_heads, head_dim].
        use_kernels: Triton's, on CUDA; PaddedDecode takes their place on the CPU.
        """
        self._slots = slots
        self._write = kv_write if use_kernels else kv_write_reference
        self._parts: list[tuple[slice, RowAttention]] = []
        num_singles = sum(1 for span in spans if span.num_tokens == 1)
        singles = spans[:num_singles]
        if use_kernels and singles:
            decode = KernelDecode(singles, cache_shape[2], slots.device)
            self._parts.append((slice(0, num_singles), decode))
        elif singles:
            for rows in buckets([span.end for span in singles]):
                self._parts.append((rows, PaddedDecode(singles[rows], cache_shape, dtype)))
        row = num_singles
        for span in spans[num_singles:]:
            rows = slice(row, row + span.num_tokens)
            self._parts.append((rows, ChunkAttention(span, cache_shape, dtype, slots.device)))
            row = rows.stop

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim], written to the cache.

        Returns [tokens, heads, head_dim].
        """
        self._write(k, v, cache, self._slots)
        output = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for rows, attend in self._parts:
            output[rows] = attend(q[rows], k[rows], v[rows], cache, scale)
        return output


class KernelDecode:
    def __init__(self, spans: Sequence[Span], block_size: int, device: torch.device) -> None:
        tables = pad_tables(spans, block_size).astype(np.int32)
        self._tables = torch.from_numpy(tables).to(device)
        self._lengths = torch.tensor([span.end for span in spans], dtype=torch.int32).to(device)
        self._max_length = spans[-1].end

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, scale: float
    ) -> torch.Tensor:
        return paged_decode(q, cache, self._tables, self._lengths, scale, self._max_length)


class PaddedDecode:
    """Gathers whole blocks, then one SDPA in which the heads of a group are its queries."""

    def __init__(self, spans: Sequence[Span], cache_shape: torch.Size, dtype: torch.dtype) -> None:
        _, _, block_size, num_kv_heads, head_dim = cache_shape
        tables = pad_tables(spans, block_size)
        self._blocks = torch.from_numpy(tables.ravel())
        self._shape = (len(spans), -1, num_kv_heads, head_dim)
        ends = torch.tensor([span.end for span in spans])
        positions = torch.arange(tables.shape[1] * block_size)
        is_padding = positions >= ends[:, None]
        self._mask = torch.zeros(is_padding.shape, dtype=dtype).masked_fill_(is_padding, -torch.inf)
        # One buffer for all layers: its pages are touched for the first time once a step.
        width = block_size * num_kv_heads * head_dim
        self._gathered = torch.empty(2, self._blocks.numel(), width, dtype=dtype)

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, scale: float
    ) -> torch.Tensor:
        num_rows, _, num_kv_heads, head_dim = self._shape
        k, v = (
            torch.index_select(pool.flatten(1), 0, self._blocks, out=gathered)
            .view(self._shape)
            .transpose(1, 2)
            for pool, gathered in zip(cache, self._gathered, strict=True)
        )
        grouped = q.view(num_rows, num_kv_heads, -1, head_dim)
        mask = self._mask[:, None, None]
        mixed = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=scale)
        return mixed.reshape(q.shape)


class ChunkAttention:
    """Several new tokens of one sequence, after those it has in the cache."""

    def __init__(
        self, span: Span, cache_shape: torch.Size, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._end = span.end
        self._mask: torch.Tensor | None = None
        if span.start == 0:
            return
        num_blocks = -(-span.end // cache_shape[2])
        self._blocks = torch.tensor(span.block_table[:num_blocks]).to(device)
        self._gathered = torch.empty(2, num_blocks, *cache_shape[2:], dtype=dtype, device=device)
        mask = torch.ones(span.num_tokens, span.end, dtype=torch.bool, device=device)
        self._mask = mask.tril_(span.start)

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, scale: float
    ) -> torch.Tensor:
        if self._mask is not None:
            for pool, gathered in zip(cache, self._gathered, strict=True):
                torch.index_select(pool, 0, self._blocks, out=gathered)
            k, v = self._gathered.flatten(1, 2)[:, : self._end]
        mixed = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            k.transpose(0, 1)[None],
            v.transpose(0, 1)[None],
            attn_mask=self._mask,
            is_causal=self._mask is None,
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        return mixed[0].transpose(0, 1)


def buckets(lengths: Sequence[int]) -> Iterator[slice]:
    """Cuts rising lengths so that, in each range, none is padded to more than twice itself."""
    first = 0
    for index, length in enumerate(lengths):
        if length > max(2 * lengths[first], MIN_BUCKET_TOKENS):
            yield slice(first, index)
            first = index
    yield slice(first, len(lengths))


def pad_tables(
    spans: Sequence[Span], block_size: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """int64 [spans, blocks of the longest], padded with block 0, whose contents get no weight."""
    num_blocks = [-(-span.end // block_size) for span in spans]
    tables = np.zeros((len(spans), max(num_blocks)), dtype=np.int64)
    for row, (span, count) in enumerate(zip(spans, num_blocks, strict=True)):
        tables[row, :count] = span.block_table[:count]
    return tables
