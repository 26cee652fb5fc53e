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
    """Attention of one step with a single kernel launch per layer for the whole batch."""

    def __init__(self, batch: PagedBatch, slots: torch.Tensor) -> None:
        """slots: int64 [tokens], slot mapping of new keys and values; negative: not written."""
        self.batch = batch
        self.slots = slots

    @classmethod
    def of(cls, spans: Sequence[Span], slots: torch.Tensor, block_size: int) -> "PagedAttention":
        tables = pad_tables([span.blocks(0, block_size) for span in spans]).astype(np.int32)
        lengths = np.array([span.end for span in spans], dtype=np.int32)
        max_queries = max(span.num_tokens for span in spans)
        starts = None
        if max_queries > 1:
            starts = np.cumsum([0, *(span.num_tokens for span in spans)], dtype=np.int32)
        batch = PagedBatch(
            block_tables=send(torch.from_numpy(tables), slots.device),
            query_starts=None if starts is None else send(torch.from_numpy(starts), slots.device),
            lengths=send(torch.from_numpy(lengths), slots.device),
            max_queries=max_queries,
            max_length=int(lengths.max()),
        )
        return cls(batch, slots)

    def __call__(self, heads: QKV, cache: KVCache, shape: AttentionShape) -> torch.Tensor:
        kv_write(heads.k, heads.v, cache.numbers, self.slots, cache.scales)
        return paged_attention(
            heads.q, cache.numbers, self.batch, shape.scale,
            window=shape.window_tokens or 0, softcap=shape.softcap or 0.0, kv_scales=cache.scales,
        )  # fmt: skip
