"""Attention whose scores pass through softcap * tanh(score / softcap), for which SDPA has no way."""

import torch

# Scores that exist at once: 8 MiB in float32, and two more of the kind on the way.
MAX_SCORES = 1 << 21


def softcapped(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    softcap: float,
) -> torch.Tensor:
    """What SDPA does, which knows no softcap. mask: is added to the capped scores.

    q: [..., queries, head_dim]; k, v: [..., keys, head_dim]; mask: to [..., queries, keys].
    """
    scores = (q @ k.transpose(-1, -2)).mul_(scale / softcap).tanh_().mul_(softcap).add_(mask)
    return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


def softcapped_chunk(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float,
) -> torch.Tensor:
    """q: [tokens, heads, head_dim]; k, v: [keys, kv_heads, head_dim]. mask: None is causal.

    Takes so many queries at once that there are never more than MAX_SCORES scores.
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
        parts.append(softcapped(grouped[:, :, rows], k, v, added[rows], scale, softcap))
    return torch.cat(parts, dim=2).permute(2, 0, 1, 3).reshape(q.shape)
