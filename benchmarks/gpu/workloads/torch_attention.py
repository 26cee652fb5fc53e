"""torch's scaled dot-product attention, for comparison: keys and values lie one after another."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from benchmarks.gpu.workloads.attention_inputs import ROTATED_BYTES, Case, Heads, Pool
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = ("any", "flash", "cudnn")
_KINDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def torch_attention(
    case: Case, heads: Heads, pool: Pool, backend: str, max_copies: int
) -> list[Callable[[], torch.Tensor]]:
    """Launches of a case over different parts of the pool, taken as if they were contiguous caches.

    The case must have new tokens of one kind: single ones, or whole prompts, as torch's causal mask
    starts at the first key.

    backend: one of BACKENDS; any: the one that torch chooses.
    """
    num_seqs, length = len(case.lengths), case.lengths[0]
    shape = (num_seqs, heads.num_kv_heads, length, heads.head_dim)
    numbers = torch.Size(shape).numel()
    keys, values = pool.numbers[0].flatten(), pool.numbers[1].flatten()
    wanted = -(-ROTATED_BYTES // case.kv_bytes(heads))
    num_copies = max(1, min(wanted, max_copies, len(keys) // numbers))
    query = torch.randn(
        num_seqs, heads.num_heads, case.num_queries, heads.head_dim, device=keys.device
    ).bfloat16()

    def launch(index: int) -> torch.Tensor:
        part = slice(index * numbers, (index + 1) * numbers)
        own = keys[part].view(shape), values[part].view(shape)
        is_causal = case.num_queries > 1
        return F.scaled_dot_product_attention(query, *own, is_causal=is_causal, enable_gqa=True)

    def launch_with(index: int) -> torch.Tensor:
        if backend == "any":
            return launch(index)
        with sdpa_kernel(_KINDS[backend]):
            return launch(index)

    return [partial(launch_with, index) for index in range(num_copies)]
