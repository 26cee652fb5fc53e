"""Attention of one new token for each sequence over its paged keys and values."""

import torch

from penstock_engine.kernels.paged_attention import launch, paged_attention_reference


def paged_decode_reference(
    query: torch.Tensor,
    cache: torch.Tensor,
    block_tables: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    *,
    window: int = 0,
    softcap: float = 0.0,
    kv_scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """query: [sequences, heads, head_dim]; the rest as in paged_attention_reference.

    The row of a sequence of length 0 is padding, and its result 0.
    """
    starts = torch.arange(len(lengths) + 1, dtype=torch.int32, device=query.device)
    return paged_attention_reference(
        query, cache, block_tables, starts, lengths, scale,
        window=window, softcap=softcap, kv_scales=kv_scales,
    )  # fmt: skip


def paged_decode(
    query: torch.Tensor,
    cache: torch.Tensor,
    block_tables: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    max_length: int,
    *,
    window: int = 0,
    softcap: float = 0.0,
    kv_scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """As paged_decode_reference. max_length: at least the largest of lengths, without a sync."""
    return launch(
        query, cache, block_tables, None, lengths, scale, 1, max_length,
        window=window, softcap=softcap, kv_scales=kv_scales,
    )  # fmt: skip
