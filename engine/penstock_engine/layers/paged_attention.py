"""Attention with Triton kernels that read the paged KV cache directly."""

from collections.abc import Sequence

import numpy as np
import torch

from penstock_engine.kernels.kv_write import kv_write
from penstock_engine.kernels.paged_attention import paged_attention
from penstock_engine.kernels.paged_batch import PagedBatch
from penstock_engine.kernels.transfer import send
from penstock_engine.layers.attention import QKV, AttentionShape, Span, pad_tables
from penstock_engine.layers.kv_cache import KVCache


class PagedAttention:
    """Attention of one step: a launch for its single tokens and one for its chunks, in each layer."""

    def __init__(
        self, batch: PagedBatch, slots: torch.Tensor, chunks: PagedBatch | None = None
    ) -> None:
        """batch: of all sequences, or of those before `chunks`, with one token each. slots: int64
        [tokens], slot mapping of new keys and values; negative: not written."""
        self.batch = batch
        self.slots = slots
        self.chunks = chunks

    @classmethod
    def of(cls, spans: Sequence[Span], slots: torch.Tensor, block_size: int) -> "PagedAttention":
        """Attention of spans in row order: single tokens come first."""
        num_single = 0
        while num_single < len(spans) and spans[num_single].num_tokens == 1:
            num_single += 1
        parts = [part for part in (spans[:num_single], spans[num_single:]) if part]
        batches = [_batch(part, slots.device, block_size) for part in parts]
        return cls(batches[0], slots, *batches[1:])

    def __call__(self, heads: QKV, cache: KVCache, shape: AttentionShape) -> torch.Tensor:
        kv_write(heads.k, heads.v, cache.numbers, self.slots, cache.scales)
        output = torch.empty(heads.q.shape, dtype=heads.q.dtype, device=heads.q.device)
        num_single = len(heads.q) if self.chunks is None else len(self.batch.lengths)
        for batch, rows in (
            (self.batch, slice(num_single)),
            (self.chunks, slice(num_single, None)),
        ):
            if batch is not None:
                paged_attention(
                    heads.q[rows], cache.numbers, batch, shape.scale,
                    window=shape.window_tokens or 0, softcap=shape.softcap or 0.0,
                    kv_scales=cache.scales, out=output[rows],
                )  # fmt: skip
        return output


def _batch(spans: Sequence[Span], device: torch.device, block_size: int) -> PagedBatch:
    tables = pad_tables([span.blocks(0, block_size) for span in spans]).astype(np.int32)
    lengths = np.array([span.end for span in spans], dtype=np.int32)
    max_queries = max(span.num_tokens for span in spans)
    starts = None
    if max_queries > 1:
        starts = np.cumsum([0, *(span.num_tokens for span in spans)], dtype=np.int32)
    return PagedBatch(
        block_tables=send(torch.from_numpy(tables), device),
        query_starts=None if starts is None else send(torch.from_numpy(starts), device),
        lengths=send(torch.from_numpy(lengths), device),
        max_queries=max_queries,
        max_length=int(lengths.max()),
    )
