"""Attention with logit soft-capping, softcap * tanh(score / softcap), which SDPA does not support."""

import torch

# Scores that exist at once: 8 MiB in float32, and two more tensors of this size temporarily.
MAX_SCORES = 1 << 21


def softcap_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    softcap: float,
) -> torch.Tensor:
    """Scaled dot-product attention with soft-capped scores. mask: is added to the capped scores.

    q: [..., queries, head_dim]; k, v: [..., keys, head_dim]; mask: broadcasts to [..., queries, keys].
    """
    scores = (q @ k.transpose(-1, -2)).mul_(scale / softcap).tanh_().mul_(softcap).add_(mask)
    return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


def softcap_chunk_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float,
) -> torch.Tensor:
    """Soft-capped attention of a chunk of one sequence, at most MAX_SCORES scores at a time.

    q: [tokens, heads, head_dim]; k, v: [keys, kv_heads, head_dim]. mask: bool [tokens, keys], True
    where a token attends to a key; None: causal.
    """
    num_keys, num_kv_heads, head_dim = k.shape
    if mask is None:
        mask = torch.ones(len(q), num_keys, dtype=torch.bool, device=q.device).tril_()
    grouped = q.view(len(q), num_kv_heads, -1, head_dim).permute(1, 2, 0, 3)
    k, v = k.transpose(0, 1)[:, None], v.transpose(0, 1)[:, None]
    added = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill_(~mask, -torch.inf)
    num_rows = max(1, MAX_SCORES // (q.shape[1] * num_keys))
    parts = []
    for start in range(0, len(q), num_rows):
        rows = slice(start, start + num_rows)
        parts.append(softcap_attention(grouped[:, :, rows], k, v, added[rows], scale, softcap))
    return torch.cat(parts, dim=2).permute(2, 0, 1, 3).reshape(q.shape)
