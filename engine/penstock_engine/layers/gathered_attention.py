"""Attention in torch: gathers keys and values from the cache and calls SDPA.

A NaN in a key or value must only affect rows that attend to it. SDPA multiplies masked values by 0,
which keeps a NaN. Therefore masked positions are zeroed after gathering, and rows before a token with
NaN are computed without its key.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F

from penstock_engine.kernels.kv_write import kv_write_reference
from penstock_engine.layers.attention import QKV, AttentionShape, Span, pad_tables
from penstock_engine.layers.gather_sizes import GATHERED_AT_ONCE_BYTES, MASK_NUMBERS
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.softcap import softcap_attention, softcap_chunk_attention

# Length below which padding costs less than one more call of SDPA.
MIN_BUCKET_TOKENS = 256


class GatheredAttention:
    """Attention in torch for one step, planned in parts of the rows: once for each window and cache shape."""

    def __init__(
        self,
        spans: Sequence[Span],
        slots: torch.Tensor,
        *,
        dtype: torch.dtype,
        is_quantized: bool = False,
    ) -> None:
        """spans: single tokens by ascending end, then chunks. slots: int64 [tokens], of the cache.

        The last block of each cache holds zeros and belongs to no sequence. is_quantized: whether the
        caches are quantized. Each token then attends to the cached values, even its own, so that
        results do not depend on how a prompt is split into chunks.
        """
        self.spans = spans
        self.slots = slots
        self._dtype = dtype
        self._is_quantized = is_quantized
        self._longest = max(span.end for span in spans)
        self._plans: dict[tuple[int | None, torch.Size], list[tuple[slice, Part]]] = {}
        # All parts and layers share a buffer, so that its pages are faulted in only once per step.
        self._buffer = torch.empty(0, dtype=dtype)

    def __call__(self, heads: QKV, cache: KVCache, shape: AttentionShape) -> torch.Tensor:
        kv_write_reference(heads.k, heads.v, cache.numbers, self.slots, cache.scales)
        window_tokens = shape.window_tokens
        if window_tokens is not None and window_tokens >= self._longest:
            window_tokens = None
        key = (window_tokens, cache.numbers.shape)
        if key not in self._plans:
            self._plans[key] = self._plan(*key)
        output = torch.empty(heads.q.shape, dtype=heads.q.dtype, device=heads.q.device)
        for rows, attend in self._plans[key]:
            gathered = None if attend.blocks is None else self._gather(cache, attend.blocks)
            output[rows] = attend(heads.select(rows), gathered, shape)
        return output

    def _gather(self, cache: KVCache, blocks: torch.Tensor) -> torch.Tensor:
        num_vectors, _, *block_shape = cache.numbers.shape
        shape = torch.Size((num_vectors, len(blocks), *block_shape))
        gathered = self._buffer[: shape.numel()].view(shape)
        cache.gather(blocks, gathered)
        return gathered

    def _plan(
        self, window_tokens: int | None, cache_shape: torch.Size
    ) -> "list[tuple[slice, Part]]":
        parts: list[tuple[slice, Part]] = []
        num_singles = sum(1 for span in self.spans if span.num_tokens == 1)
        singles = self.spans[:num_singles]
        num_vectors, _, block_size, num_heads, head_dim = cache_shape
        token_numbers = num_vectors * num_heads * head_dim
        if singles:
            max_tokens = GATHERED_AT_ONCE_BYTES // (token_numbers * self._dtype.itemsize)
            lengths = [span.end - span.first_visible(window_tokens) for span in singles]
            for rows in buckets(lengths, max_tokens):
                padded = PaddedDecode(singles[rows], window_tokens, cache_shape, self._dtype)
                parts.append((rows, padded))
        row = num_singles
        for span in self.spans[num_singles:]:
            rows = slice(row, row + span.num_tokens)
            chunk = ChunkAttention(span, window_tokens, block_size, is_quantized=self._is_quantized)
            parts.append((rows, chunk))
            row = rows.stop
        most_blocks = max(0 if part.blocks is None else len(part.blocks) for _, part in parts)
        num_numbers = most_blocks * block_size * token_numbers
        if num_numbers > len(self._buffer):
            self._buffer = torch.empty(num_numbers, dtype=self._dtype)
        return parts


class PaddedDecode:
    """Decode attention of several sequences in one SDPA call over whole blocks.

    The query heads of a key-value head are SDPA's query positions.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        window_tokens: int | None,
        cache_shape: torch.Size,
        dtype: torch.dtype,
    ) -> None:
        _, num_blocks, block_size, num_kv_heads, head_dim = cache_shape
        firsts = [span.first_visible(window_tokens) for span in spans]
        blocks = [span.blocks(first, block_size) for span, first in zip(spans, firsts, strict=True)]
        tables = pad_tables(blocks, padding=num_blocks - 1)
        self.blocks = torch.from_numpy(tables.ravel())
        self._shape = (len(spans), -1, num_kv_heads, head_dim)
        # Positions in the gathered blocks, which start with the block of the first visible position.
        places = torch.arange(tables.shape[1] * block_size)
        skipped = torch.tensor([first % block_size for first in firsts])[:, None]
        counts = torch.tensor([s.end - f for s, f in zip(spans, firsts, strict=True)])[:, None]
        ends = torch.tensor([len(own) * block_size for own in blocks])[:, None]
        is_hidden = (places < skipped) | (places >= skipped + counts)
        self._mask = torch.zeros(is_hidden.shape, dtype=dtype).masked_fill_(is_hidden, -torch.inf)
        # Masked positions in the sequences' own blocks; the padding after them already holds zeros.
        self._hidden = (is_hidden & (places < ends)).ravel().nonzero()[:, 0]

    def __call__(
        self, heads: QKV, gathered: torch.Tensor | None, shape: AttentionShape
    ) -> torch.Tensor:
        assert gathered is not None
        num_rows, _, num_kv_heads, head_dim = self._shape
        gathered.flatten(1, 2).index_fill_(1, self._hidden, 0)
        k, v = (part.view(self._shape).transpose(1, 2) for part in gathered)
        grouped = heads.q.view(num_rows, num_kv_heads, -1, head_dim)
        mask = self._mask[:, None, None]
        if shape.softcap is not None:
            return softcap_attention(grouped, k, v, mask, shape.scale, shape.softcap).reshape(
                heads.q.shape
            )
        mixed = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=shape.scale)
        return mixed.reshape(heads.q.shape)


class ChunkAttention:
    """Attention of several new tokens of one sequence, in one SDPA call for each piece of rows."""

    def __init__(
        self, span: Span, window_tokens: int | None, block_size: int, *, is_quantized: bool
    ) -> None:
        self._span = span
        self._window_tokens = window_tokens
        self._first = 0
        self.blocks: torch.Tensor | None = None
        if span.start > 0 or is_quantized:
            first = span.first_visible(window_tokens)
            self._first = first - first % block_size
            self.blocks = torch.tensor(span.blocks(self._first, block_size))

    def __call__(
        self, heads: QKV, gathered: torch.Tensor | None, shape: AttentionShape
    ) -> torch.Tensor:
        k, v = (heads.k, heads.v) if gathered is None else gathered.flatten(1, 2)
        output = torch.empty_like(heads.q)
        for rows in self._pieces(num_finite_rows(heads.k, heads.v)):
            output[rows] = self._attend(heads.q[rows], k, v, rows, shape)
        return output

    def _pieces(self, num_clean: int) -> Iterator[slice]:
        """Ranges of rows for one call each, with the keys up to the last row of the range.

        num_clean: number of rows before the first NaN; no range crosses it.
        """
        ends = sorted({num_clean, self._span.num_tokens} - {0})
        first = 0
        for end in ends:
            while first < end:
                num_rows = end - first
                if not self._is_causal(first, end):
                    num_keys = self._span.start + end - self._first
                    num_rows = min(num_rows, max(1, MASK_NUMBERS // num_keys))
                yield slice(first, first + num_rows)
                first += num_rows

    def _is_causal(self, first: int, end: int) -> bool:
        """Whether a range needs no mask except the causal one: row i attends to keys 0 to i."""
        window_tokens = self._window_tokens
        return self._span.start + first == 0 and (window_tokens is None or end <= window_tokens)

    def _attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: slice, shape: AttentionShape
    ) -> torch.Tensor:
        """Attend with a range of rows. q: [rows, heads, head_dim]; k, v: [keys, kv_heads, head_dim].

        The keys start at position self._first.
        """
        num_keys = self._span.start + rows.stop - self._first
        k, v = k[:num_keys], v[:num_keys]
        mask = None if self._is_causal(rows.start, rows.stop) else self._mask(rows, num_keys)
        if shape.softcap is not None:
            return softcap_chunk_attention(q, k, v, mask, shape.scale, shape.softcap)
        mixed = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            k.transpose(0, 1)[None],
            v.transpose(0, 1)[None],
            attn_mask=mask,
            is_causal=mask is None,
            scale=shape.scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        return mixed[0].transpose(0, 1)

    def _mask(self, rows: slice, num_keys: int) -> torch.Tensor:
        """Attention mask of a range of rows, bool [rows, keys]: True where a row attends to a key."""
        num_rows = rows.stop - rows.start
        last = num_keys - num_rows  # the key of the first row's own token
        mask = torch.ones(num_rows, num_keys, dtype=torch.bool).tril_(last)
        return mask if self._window_tokens is None else mask.triu_(last - self._window_tokens + 1)


Part = PaddedDecode | ChunkAttention


def num_finite_rows(k: torch.Tensor, v: torch.Tensor) -> int:
    """Number of rows before the first key or value that is not finite."""
    # A finite sum has only finite terms. Finite terms may overflow, so otherwise all are checked.
    total = k.sum(dtype=torch.float32) + v.sum(dtype=torch.float32)
    if total.isfinite():
        return len(k)
    is_number = (k.isfinite() & v.isfinite()).flatten(1).all(1)
    return int(is_number.long().cumprod(0).sum())


def buckets(lengths: Sequence[int], max_tokens: int) -> Iterator[slice]:
    """Split ascending lengths into ranges, each of which is padded to its longest length.

    No length is padded to more than twice itself (or MIN_BUCKET_TOKENS), and a range of several
    lengths has at most max_tokens in total after padding.
    """
    first = 0
    for index, length in enumerate(lengths):
        is_padded = length > max(2 * lengths[first], MIN_BUCKET_TOKENS)
        if is_padded or (index > first and (index + 1 - first) * length > max_tokens):
            yield slice(first, index)
            first = index
    yield slice(first, len(lengths))
