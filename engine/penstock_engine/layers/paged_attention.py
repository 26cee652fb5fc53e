"""Attention by Triton's kernels, which read the cache where it lies."""

from collections.abc import Sequence

import numpy as np
import torch

from penstock_engine.kernels.kv_write import kv_write
from penstock_engine.kernels.paged_attention import paged_attention
from penstock_engine.kernels.paged_batch import PagedBatch
from penstock_engine.kernels.transfer import send
from penstock_engine.layers.attention import AttentionShape, Heads, Span, pad_tables
from penstock_engine.layers.kv_cache import KVCache


class PagedAttention:
    """One launch for the whole batch, whatever the lengths of its sequences."""

    def __init__(self, batch: PagedBatch, slots: torch.Tensor) -> None:
        """slots: int64 [tokens], where their keys and values go; below 0: nowhere."""
        self.batch = batch
        self.slots = slots

    @classmethod
    def of(cls, spans: Sequence[Span], slots: torch.Tensor, block_size: int) -> "PagedAttention":
        return cls(batch_of(spans, block_size, slots.device), slots)

    def __call__(self, heads: Heads, cache: KVCache, shape: AttentionShape) -> torch.Tensor:
        kv_write(heads.k, heads.v, cache.numbers, self.slots, cache.scales)
        return paged_attention(
            heads.q, cache.numbers, self.batch, shape.scale,
            window=shape.window_tokens or 0, softcap=shape.softcap or 0.0, kv_scales=cache.scales,
        )  # fmt: skip


def batch_of(spans: Sequence[Span], block_size: int, device: torch.device) -> PagedBatch:
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
