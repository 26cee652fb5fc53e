"""LoRA products for a batch with many adapters: y += B (A x), with A and B of each token's adapter.

The adapters are stacked, padded with zeros to the largest rank, with their scale multiplied into B.
Tokens are grouped by adapter once per step; every layer shrinks (A) and expands (B) by these groups.
"""

import torch

from penstock_engine.kernels.group_rows import Groups, group_rows, group_rows_reference
from penstock_engine.kernels.grouped_linear import (
    choose_block_rows,
    grouped_linear,
    grouped_linear_reference,
)


def group_by_adapter_reference(adapters: torch.Tensor, num_adapters: int) -> Groups:
    """Group tokens by adapter. adapters: integers [tokens], each below num_adapters; -1: none."""
    return group_rows_reference(adapters, num_adapters, 16)


def group_by_adapter(adapters: torch.Tensor, num_adapters: int) -> Groups:
    """Group tokens by adapter (Triton). adapters: integers [tokens], below num_adapters; -1: none."""
    return group_rows(adapters, num_adapters, choose_block_rows(len(adapters), num_adapters))


def lora_shrink_reference(x: torch.Tensor, a: torch.Tensor, tokens: Groups) -> torch.Tensor:
    """Multiply each token by the A matrix of its adapter. Returns float32 [tokens, rank].

    x: [tokens, inputs]; a: [adapters, rank, inputs]. The A matrices of projections that share their
    input are stacked along the rank, multiplied at once, and the result is split for each to expand.
    """
    return grouped_linear_reference(x, a, tokens, out_dtype=torch.float32)


def lora_shrink(x: torch.Tensor, a: torch.Tensor, tokens: Groups) -> torch.Tensor:
    """Multiply each token by the A matrix of its adapter (Triton); see lora_shrink_reference."""
    return grouped_linear(x, a, tokens, out_dtype=torch.float32)


def lora_expand_reference(
    shrunk: torch.Tensor, b: torch.Tensor, tokens: Groups, y: torch.Tensor
) -> None:
    """Multiply each token by the B matrix of its adapter, and add the result to y in place.

    shrunk: float32 [tokens, rank]; b: [adapters, outputs, rank]; y: [tokens, outputs], which may be
    a range of columns of a wider tensor. Rows without an adapter do not change.
    """
    grouped_linear_reference(shrunk, b, tokens, out=y)


def lora_expand(shrunk: torch.Tensor, b: torch.Tensor, tokens: Groups, y: torch.Tensor) -> None:
    """Add the product with each token's B matrix to y (Triton); see lora_expand_reference."""
    grouped_linear(shrunk, b, tokens, out=y)
