"""Attention in torch: keys and values are gathered from the cache, and SDPA does the rest."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F

from penstock_engine.kernels.kv_write import kv_write_reference
from penstock_engine.layers.attention import AttentionShape, Heads, Span, pad_tables
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.softcap import softcapped, softcapped_chunk

# Below this length, padding costs less than one more call.
MIN_BUCKET_TOKENS = 256


class GatheredAttention:
    """Planned once for each window: a part for each range of the batch's rows."""

    def __init__(
        self,
        spans: Sequence[Span],
        slots: torch.Tensor,
        *,
        cache_shape: torch.Size,
        dtype: torch.dtype,
        is_rounded: bool = False,
    ) -> None:
        """spans: single tokens by rising end, then chunks. slots: int64 [tokens].

        cache_shape: of one layer's cache, [2, blocks, block_size, kv_heads, head_dim].
        is_rounded: by the cache, keys and values are. Each token then sees them as the cache has
        them, its own too, so that nothing depends on how a prompt is cut into chunks.
        """
        self._spans = spans
        self._slots = slots
        self._cache_shape = cache_shape
        self._dtype = dtype
        self._is_rounded = is_rounded
        self._longest = max(span.end for span in spans)
        self._plans: dict[int | None, list[tuple[slice, Part]]] = {}

    def __call__(self, heads: Heads, cache: KVCache, shape: AttentionShape) -> torch.Tensor:
        kv_write_reference(heads.k, heads.v, cache.numbers, self._slots, cache.scales)
        window_tokens = shape.window_tokens
        if window_tokens is not None and window_tokens >= self._longest:
            window_tokens = None
        if window_tokens not in self._plans:
            self._plans[window_tokens] = self._plan(window_tokens)
        output = torch.empty(heads.q.shape, dtype=heads.q.dtype, device=heads.q.device)
        for rows, attend in self._plans[window_tokens]:
            output[rows] = attend(heads.of(rows), cache, shape)
        return output

    def _plan(self, window_tokens: int | None) -> "list[tuple[slice, Part]]":
        parts: list[tuple[slice, Part]] = []
        num_singles = sum(1 for span in self._spans if span.num_tokens == 1)
        singles = self._spans[:num_singles]
        if singles:
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

    def __call__(self, heads: Heads, cache: KVCache, shape: AttentionShape) -> torch.Tensor:
        num_rows, _, num_kv_heads, head_dim = self._shape
        cache.gather(self._blocks, self._gathered)
        k, v = (gathered.view(self._shape).transpose(1, 2) for gathered in self._gathered)
        grouped = heads.q.view(num_rows, num_kv_heads, -1, head_dim)
        mask = self._mask[:, None, None]
        if shape.softcap is not None:
            return softcapped(grouped, k, v, mask, shape.scale, shape.softcap).reshape(
                heads.q.shape
            )
        mixed = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=shape.scale)
        return mixed.reshape(heads.q.shape)


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

    def __call__(self, heads: Heads, cache: KVCache, shape: AttentionShape) -> torch.Tensor:
        q, k, v = heads.q, heads.k, heads.v
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


Part = PaddedDecode | ChunkAttention


def buckets(lengths: Sequence[int]) -> Iterator[slice]:
    """Cuts rising lengths so that, in each range, none is padded to more than twice itself."""
    first = 0
    for index, length in enumerate(lengths):
        if length > max(2 * lengths[first], MIN_BUCKET_TOKENS):
            yield slice(first, index)
            first = index
    yield slice(first, len(lengths))
