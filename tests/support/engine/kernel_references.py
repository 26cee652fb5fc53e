"""References in torch of the Triton kernels, with the kernels' arguments and results.

They are simple rather than fast. Sums are float32.
"""

import torch
import torch.nn.functional as F

from penstock_engine.kernels.adjust_logits import Penalties
from penstock_engine.kernels.group_rows import Groups, max_num_blocks
from penstock_engine.kernels.paged_batch import PagedBatch
from penstock_engine.kernels.torch_ops import gate


def dequantize_kv(
    values: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Dequantize vectors. values: int8 or float8_e4m3fn [..., head_dim]; scales: float32 [...]."""
    return (values.float() * scales[..., None]).to(dtype)


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
    """Causal attention of new tokens over the paged KV cache."""
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


def rope_reference(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Apply rotary position embedding to q and k in place."""
    c, s = cos[:, None].float(), sin[:, None].float()
    half = cos.shape[1]
    for x in (q, k):
        first, second = x[..., :half].float(), x[..., half : 2 * half].float()
        turned = torch.cat((first * c - second * s, second * c + first * s), -1)
        x[..., : 2 * half] = turned.to(x.dtype)


def int4_linear_reference(
    x: torch.Tensor, packed: torch.Tensor, scales_and_offsets: torch.Tensor, num_outputs: int
) -> torch.Tensor:
    """Multiply x by 4-bit weights."""
    num_inputs = packed.shape[1]
    codes = torch.cat((packed & 15, packed >> 4), 2).transpose(1, 2).flatten(0, 1).float() - 8
    scales, offsets = scales_and_offsets.float().unbind(-1)
    groups = codes.view(len(codes), len(scales), num_inputs // len(scales))
    groups = groups * scales.t()[..., None] + offsets.t()[..., None]
    result = F.linear(x.float(), groups.flatten(1)[:num_outputs])
    return result.to(x.dtype)


def int8_linear_reference(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    group_size: int,
    *,
    zeros: torch.Tensor | None = None,
    factor: float = 1.0,
) -> torch.Tensor:
    """Multiply x by 8-bit weights."""
    group = torch.arange(codes.shape[1], device=codes.device) // group_size
    weight = codes.float()
    if zeros is not None:
        weight -= zeros[:, group]
    result = F.linear(x.float(), weight * scales[:, group]) * factor
    return result.to(x.dtype)


def group_rows_reference(groups: torch.Tensor, num_groups: int, block_rows: int) -> Groups:
    """Sort row indices by group, in blocks of block_rows."""
    num_rows = len(groups)
    num_blocks = max_num_blocks(num_rows, num_groups, block_rows)
    bucket = groups.long().where(groups >= 0, num_groups)
    order = bucket.argsort(stable=True)
    counts = torch.zeros(num_groups + 1, dtype=torch.int64, device=groups.device)
    counts.scatter_add_(0, bucket, torch.ones_like(bucket))
    padded = (counts + block_rows - 1) // block_rows * block_rows
    shift = (padded.cumsum(0) - padded) - (counts.cumsum(0) - counts)
    rows = groups.new_full((num_blocks * block_rows,), num_rows, dtype=torch.int32)
    rows[torch.arange(num_rows, device=groups.device) + shift[bucket[order]]] = order.int()
    starts = torch.arange(num_blocks, device=groups.device) * block_rows
    owner = torch.searchsorted(padded.cumsum(0), starts, right=True)
    block_groups = owner.where(owner < num_groups, -1).int()
    return Groups(rows, block_groups, block_rows, num_rows, num_groups)


def grouped_linear_reference(
    x: torch.Tensor,
    weights: torch.Tensor,
    groups: Groups,
    *,
    rows_of_input: int = 1,
    factors: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Multiply each row of x by the weight matrix of its group."""
    if out is None:
        shape = (groups.num_rows, weights.shape[1])
        out = torch.zeros(shape, dtype=out_dtype or x.dtype, device=x.device)
    blocks = groups.rows.view(-1, groups.block_rows)
    for rows, group in zip(blocks.long(), groups.block_groups.tolist(), strict=True):
        rows = rows[rows < groups.num_rows]
        if group < 0 or not len(rows):
            continue
        inputs = x[rows // rows_of_input].to(weights.dtype).float()
        result = inputs @ weights[group].float().T
        if factors is not None:
            result *= factors[rows, None]
        out[rows] = (out[rows].float() + result).to(out.dtype)
    return out


def moe_reference(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    expert_ids: torch.Tensor,
    expert_weights: torch.Tensor,
) -> torch.Tensor:
    """Weighted sum of the MLPs, gated by SiLU, of each token's experts."""
    num_tokens, k = expert_ids.shape
    groups = group_rows_reference(expert_ids.flatten(), len(down), 16)
    gates_and_ups = grouped_linear_reference(x, gate_up, groups, rows_of_input=k)
    hidden = gate(F.silu, gates_and_ups.float()).to(x.dtype)
    shares = grouped_linear_reference(hidden, down, groups, factors=expert_weights.flatten())
    return shares.view(num_tokens, k, -1).sum(1)


def adjust_logits_reference(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    min_ps: torch.Tensor,
    *,
    penalties: Penalties | None = None,
    allowed: torch.Tensor | None = None,
) -> None:
    """Apply grammar masks, penalties, temperatures and min-p to logits in place."""
    vocab_size = logits.shape[1]
    if allowed is not None:
        bits = allowed[..., None] >> torch.arange(32, device=logits.device, dtype=torch.int32)
        logits.masked_fill_((bits & 1).flatten(1)[:, :vocab_size] == 0, -torch.inf)
    if penalties is not None:
        _penalize(logits, penalties)
    logits /= temperatures.where(temperatures > 0, 1.0)[:, None]
    floor = logits.amax(-1, keepdim=True) + min_ps.log()[:, None]
    logits.masked_fill_(logits < floor, -torch.inf)


def _penalize(logits: torch.Tensor, penalties: Penalties) -> None:
    slots = penalties.slots.clamp(min=0)
    is_known = (penalties.slots >= 0)[:, None]
    counts = penalties.counts[slots] * is_known
    is_seen = (counts > 0) | (penalties.is_in_prompt[slots] & is_known)
    repetition = penalties.repetition[:, None]
    repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits.copy_(torch.where(is_seen, repeated, logits))
    logits -= penalties.frequency[:, None] * counts + penalties.presence[:, None] * (counts > 0)


def gumbel_argmax_reference(
    logits: torch.Tensor, is_drawn: torch.Tensor, seeds: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Sample a token for each row."""
    return gumbel_scores_reference(logits, is_drawn, seeds, positions).argmax(-1)


def gumbel_scores_reference(
    logits: torch.Tensor, is_drawn: torch.Tensor, seeds: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """The logits, with noise in rows that are drawn; the largest one is the sampled token's."""
    vocab_size = logits.shape[1]
    quarter = -(-vocab_size // 4)
    counter = torch.arange(quarter, device=logits.device)
    words = philox(seeds[:, None], counter[None], positions[:, None])
    # Token t uses word t // quarter of counter t % quarter.
    noise = _gumbel(torch.cat(words, dim=1)[:, :vocab_size])
    return torch.where(is_drawn[:, None], logits + noise, logits)


def philox(
    seed: torch.Tensor, counter: torch.Tensor, position: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Philox-4x32-10: four random words, int64 below 2**32, from int64 tensors that broadcast."""
    mask = 0xFFFFFFFF
    key, other_key = seed & mask, (seed >> 32) & mask
    zeros = torch.zeros_like(counter + position)
    c0, c1, c2, c3 = counter + zeros, position + zeros, zeros, zeros
    for _ in range(10):
        # The int64 product may wrap to a negative number, but its upper 32 bits are still correct.
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            ((b >> 32) & mask) ^ c1 ^ key,
            b & mask,
            ((a >> 32) & mask) ^ c3 ^ other_key,
            a & mask,
        )
        key, other_key = (key + 0x9E3779B9) & mask, (other_key + 0xBB67AE85) & mask
    return c0, c1, c2, c3


def _gumbel(words: torch.Tensor) -> torch.Tensor:
    u = ((words.float() + 0.5) * 2.0**-32).clamp(max=1 - 2.0**-24)
    small = u * (1 + u * (0.5 + u * (1 / 3 + u * 0.25)))  # series of -log(1 - u) for small u
    return -torch.where(u < 0.01, small, -(1 - u).log()).log()
