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
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.softcap import softcapped, softcapped_chunk

# Below this length, padding costs less than one more call.
MIN_BUCKET_TOKENS = 256


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
    """Positions [start, end) of one sequence; block_table covers [0, end) at least."""

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


class RowAttention(Protocol):
    """Attention of one range of the batch's rows, planned for one window."""

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cache: KVCache,
        shape: AttentionShape,
    ) -> torch.Tensor:
        """All of shape [rows, heads or kv_heads, head_dim]; cache holds k and v already."""
        ...


class StepAttention:
    """How one step attends: planned once for each window, used by every layer."""

    def __init__(
        self,
        spans: Sequence[Span],
        slots: torch.Tensor,
        *,
        cache_shape: torch.Size,
        dtype: torch.dtype,
        use_kernels: bool,
        is_rounded: bool = False,
    ) -> None:
        """spans: single tokens by rising end, then chunks. slots: int64 [tokens].

        cache_shape: of one layer's cache, [2, blocks, block_size, kv_heads, head_dim].
        is_rounded: by the cache, keys and values are. Each token then sees them as the cache has
        them, its own too, so that nothing depends on how a prompt is cut into chunks.
        use_kernels: Triton's, on CUDA; PaddedDecode takes their place on the CPU.
        """
        self._spans = spans
        self._slots = slots
        self._cache_shape = cache_shape
        self._dtype = dtype
        self._use_kernels = use_kernels
        self._is_rounded = is_rounded
        self._write = kv_write if use_kernels else kv_write_reference
        self._longest = max(span.end for span in spans)
        self._plans: dict[int | None, list[tuple[slice, RowAttention]]] = {}

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cache: KVCache,
        shape: AttentionShape,
    ) -> torch.Tensor:
        """q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim], written to the cache.

        Returns [tokens, heads, head_dim].
        """
        self._write(k, v, cache.numbers, self._slots, cache.scales)
        window_tokens = shape.window_tokens
        if window_tokens is not None and window_tokens >= self._longest:
            window_tokens = None
        if window_tokens not in self._plans:
            self._plans[window_tokens] = self._plan(window_tokens)
        output = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for rows, attend in self._plans[window_tokens]:
            output[rows] = attend(q[rows], k[rows], v[rows], cache, shape)
        return output

    def _plan(self, window_tokens: int | None) -> list[tuple[slice, RowAttention]]:
        parts: list[tuple[slice, RowAttention]] = []
        num_singles = sum(1 for span in self._spans if span.num_tokens == 1)
        singles = self._spans[:num_singles]
        if self._use_kernels and singles:
            decode = KernelDecode(singles, self._cache_shape[2], self._slots.device)
            parts.append((slice(0, num_singles), decode))
        elif singles:
            for rows in buckets([span.end - span.first_visible(window_tokens) for span in singles]):
                padded = PaddedDecode(singles[rows], window_tokens, self._cache_shape, self._dtype)
                parts.append((rows, padded))
        row = num_singles
        for span in self._spans[num_singles:]:
            rows = slice(row, row + span.num_tokens)
            chunk = ChunkAttention(
                span,
                window_tokens,
                self._cache_shape,
                self._dtype,
                self._slots.device,
                is_rounded=self._is_rounded,
            )
            parts.append((rows, chunk))
            row = rows.stop
        return parts


class KernelDecode:
    """The kernel itself skips what lies before the window."""

    def __init__(self, spans: Sequence[Span], block_size: int, device: torch.device) -> None:
        tables = pad_tables([span.blocks(0, block_size) for span in spans]).astype(np.int32)
        self._tables = torch.from_numpy(tables).to(device)
        self._lengths = torch.tensor([span.end for span in spans], dtype=torch.int32).to(device)
        self._max_length = spans[-1].end

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cache: KVCache,
        shape: AttentionShape,
    ) -> torch.Tensor:
        return paged_decode(
            q, cache.numbers, self._tables, self._lengths, shape.scale, self._max_length,
            window=shape.window_tokens or 0, softcap=shape.softcap or 0.0, kv_scales=cache.scales,
        )  # fmt: skip


class PaddedDecode:
    """Gathers whole blocks, then one SDPA in which the heads of a group are its queries."""

    def __init__(
        self,
        spans: Sequence[Span],
        window_tokens: int | None,
        cache_shape: torch.Size,
        dtype: torch.dtype,
    ) -> None:
        _, _, block_size, num_kv_heads, head_dim = cache_shape
        firsts = [span.first_visible(window_tokens) for span in spans]
        tables = pad_tables(
            [span.blocks(first, block_size) for span, first in zip(spans, firsts, strict=True)]
        )
        self._blocks = torch.from_numpy(tables.ravel())
        self._shape = (len(spans), -1, num_kv_heads, head_dim)
        # Places in what is gathered: it begins with the block that holds the first position.
        places = torch.arange(tables.shape[1] * block_size)
        skipped = torch.tensor([first % block_size for first in firsts])[:, None]
        counts = torch.tensor([s.end - f for s, f in zip(spans, firsts, strict=True)])[:, None]
        is_hidden = places >= skipped + counts
        if window_tokens is not None:
            is_hidden |= places < skipped
        self._mask = torch.zeros(is_hidden.shape, dtype=dtype).masked_fill_(is_hidden, -torch.inf)
        # One buffer for all layers: its pages are touched for the first time once a step.
        width = block_size * num_kv_heads * head_dim
        self._gathered = torch.empty(2, self._blocks.numel(), width, dtype=dtype)

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cache: KVCache,
        shape: AttentionShape,
    ) -> torch.Tensor:
        num_rows, _, num_kv_heads, head_dim = self._shape
        cache.gather(self._blocks, self._gathered)
        k, v = (gathered.view(self._shape).transpose(1, 2) for gathered in self._gathered)
        grouped = q.view(num_rows, num_kv_heads, -1, head_dim)
        mask = self._mask[:, None, None]
        if shape.softcap is not None:
            return softcapped(grouped, k, v, mask, shape.scale, shape.softcap).reshape(q.shape)
        mixed = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=shape.scale)
        return mixed.reshape(q.shape)


class ChunkAttention:
    """Several new tokens of one sequence, after those it has in the cache."""

    def __init__(
        self,
        span: Span,
        window_tokens: int | None,
        cache_shape: torch.Size,
        dtype: torch.dtype,
        device: torch.device,
        *,
        is_rounded: bool,
    ) -> None:
        block_size = cache_shape[2]
        self._is_first = span.start == 0 and not is_rounded
        self._mask: torch.Tensor | None = None
        if self._is_first and (window_tokens is None or span.num_tokens <= window_tokens):
            return
        first = span.first_visible(window_tokens)
        first -= first % block_size
        self._num_keys = span.end - first
        mask = torch.ones(span.num_tokens, self._num_keys, dtype=torch.bool, device=device)
        self._mask = mask.tril_(span.start - first)
        if window_tokens is not None:
            self._mask.triu_(span.start - first - window_tokens + 1)
        if not self._is_first:
            blocks = span.blocks(first, block_size)
            self._blocks = torch.tensor(blocks).to(device)
            self._gathered = torch.empty(
                2, len(blocks), *cache_shape[2:], dtype=dtype, device=device
            )

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cache: KVCache,
        shape: AttentionShape,
    ) -> torch.Tensor:
        if not self._is_first:
            cache.gather(self._blocks, self._gathered)
            k, v = self._gathered.flatten(1, 2)[:, : self._num_keys]
        if shape.softcap is not None:
            return softcapped_chunk(q, k, v, self._mask, shape.scale, shape.softcap)
        mixed = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            k.transpose(0, 1)[None],
            v.transpose(0, 1)[None],
            attn_mask=self._mask,
            is_causal=self._mask is None,
            scale=shape.scale,
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
    tables: Sequence[tuple[int, ...]],
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """int64 [tables, longest], padded with block 0, whose contents get no weight."""
    padded = np.zeros((len(tables), max(map(len, tables))), dtype=np.int64)
    for row, table in enumerate(tables):
        padded[row, : len(table)] = table
    return padded
