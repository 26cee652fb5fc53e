"""Batch layout of paged attention, and its reference implementation in torch."""

from dataclasses import dataclass

import torch

from penstock_engine.kernels.kv_quant import dequantize_kv


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """New tokens of a batch of sequences, and their block tables.

    block_tables: int32 [sequences, width]; the first ceil(length / block_size) entries of a row are
    read. query_starts: int32 [sequences + 1], cumulative numbers of new tokens, starting at 0; None:
    one new token for each sequence. lengths: int32 [sequences], number of tokens with new ones
    included; the last query is at position length - 1. max_queries, max_length: upper bounds on the
    new tokens of a sequence and on lengths, known on the host; they affect the launch, not the result.
    """

    block_tables: torch.Tensor
    query_starts: torch.Tensor | None
    lengths: torch.Tensor
    max_queries: int
    max_length: int


def paged_attention_reference(
    query: torch.Tensor,
    cache: torch.Tensor,
    batch: PagedBatch,
    scale: float,
    *,
    window: int = 0,
    softcap: float = 0.0,
    kv_scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention of new tokens over the paged KV cache, computed in float32.

    query: [tokens, heads, head_dim]; the result has the same shape and dtype. cache: [2, blocks,
    block_size, kv_heads, head_dim] of the dtype of query, or int8 or float8_e4m3fn with kv_scales:
    float32 [2, blocks, block_size, kv_heads]. scale: multiplies the scores. window: sliding window,
    the query's own position included; 0: none. softcap: scores are limited to (-softcap, softcap) by
    tanh; 0: no limit. A query at a negative position is padding, and its result is 0.
    """
    output = torch.zeros_like(query)
    num_kv_heads, head_dim = cache.shape[3:]
    starts = batch.query_starts
    bounds = list(range(len(query) + 1)) if starts is None else starts.tolist()
    for row, length in enumerate(batch.lengths.tolist()):
        tokens = slice(bounds[row], bounds[row + 1])
        num_queries = tokens.stop - tokens.start
        if length == 0 or num_queries == 0:
            continue
        blocks = batch.block_tables[row, : -(-length // cache.shape[2])].long()
        pages = cache.view(torch.uint8)[:, blocks].view(cache.dtype).flatten(1, 2)[:, :length]
        if kv_scales is not None:
            pages = dequantize_kv(pages, kv_scales[:, blocks].flatten(1, 2)[:, :length])
        keys, values = pages.float()
        grouped = query[tokens].view(num_queries, num_kv_heads, -1, head_dim).float()
        scores = torch.einsum("qhgd,shd->hgqs", grouped, keys) * scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        key_at = torch.arange(length, device=query.device)
        query_at = key_at.new_tensor(range(length - num_queries, length))[:, None]
        is_hidden = (key_at > query_at) | ((key_at <= query_at - window) & (window > 0))
        weights = scores.masked_fill(is_hidden, -torch.inf).softmax(-1).nan_to_num(0.0)
        mixed = torch.einsum("hgqs,shd->qhgd", weights, values)
        output[tokens] = mixed.reshape(num_queries, -1, head_dim).to(query.dtype)
    return output
