"""Low-rank adapters, many in one batch: y += B (A x), with A and B of each token's own adapter.

The adapters lie in one stack, padded with zeros to the largest rank, their scale multiplied into B.
The tokens are grouped by adapter once a step; every layer shrinks and expands by these groups.
"""

import torch

from penstock_engine.kernels.group_rows import Groups, group_rows, group_rows_reference
from penstock_engine.kernels.grouped_linear import (
    choose_block_rows,
    grouped_linear,
    grouped_linear_reference,
)


def group_by_adapter_reference(adapters: torch.Tensor, num_adapters: int) -> Groups:
    """adapters: integers [tokens], each below num_adapters; -1: none."""
    return group_rows_reference(adapters, num_adapters, 16)


def group_by_adapter(adapters: torch.Tensor, num_adapters: int) -> Groups:
    """As group_by_adapter_reference."""
    return group_rows(adapters, num_adapters, choose_block_rows(len(adapters), num_adapters))


def lora_shrink_reference(x: torch.Tensor, a: torch.Tensor, tokens: Groups) -> torch.Tensor:
    """x: [tokens, inputs]; a: [adapters, rank, inputs]. Returns float32 [tokens, rank].

    Of projections that share their input, one stack of all ranks is shrunk at once, and what comes
    out is cut for each to expand.
    """
    return grouped_linear_reference(x, a, tokens, out_dtype=torch.float32)


def lora_shrink(x: torch.Tensor, a: torch.Tensor, tokens: Groups) -> torch.Tensor:
    """As lora_shrink_reference."""
    return grouped_linear(x, a, tokens, out_dtype=torch.float32)


def lora_expand_reference(
    shrunk: torch.Tensor, b: torch.Tensor, tokens: Groups, y: torch.Tensor
) -> None:
    """shrunk: float32 [tokens, rank]; b: [adapters, outputs, rank]; y: [tokens, outputs] grows.

    y may be a range of columns of a wider result. Rows without adapter stay as they are.
    """
    grouped_linear_reference(shrunk, b, tokens, out=y)


def lora_expand(shrunk: torch.Tensor, b: torch.Tensor, tokens: Groups, y: torch.Tensor) -> None:
    """As lora_expand_reference."""
    grouped_linear(shrunk, b, tokens, out=y)
