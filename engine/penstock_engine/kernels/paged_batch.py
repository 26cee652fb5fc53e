"""What paged attention computes: the batch, and the definition that its kernel is held against."""

from dataclasses import dataclass

import torch

from penstock_engine.kernels.kv_quant import dequantize_kv


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """Some new tokens of each sequence, and where its keys and values lie.

    block_tables: int32 [sequences, width], of which a sequence's first ceil(length / block_size)
    entries are read. query_starts: int32 [sequences + 1], rising from 0 to tokens; None: one token
    of each. lengths: int32 [sequences], of the cache, new tokens included: the last query stands at
    position length - 1.
    max_queries: at least the most queries of a sequence, max_length: at least the largest of
    lengths, both known without a sync; they choose how to launch, not what is computed.
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
    """query: [tokens, heads, head_dim]; the result has the same shape and dtype.

    cache: [2, blocks, block_size, kv_heads, head_dim], of the type of query, or int8 or
    float8_e4m3fn with kv_scales: float32 [2, blocks, block_size, kv_heads].
    window: the last positions a query sees, its own included; 0: all. softcap: scores are bent
    into (-softcap, softcap) by tanh; 0: left as they are. A query at a position below 0 is
    padding, and its result 0. Computed in float32.
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
