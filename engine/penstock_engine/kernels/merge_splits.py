# mypy: allow-incomplete-defs
"""Adds up the partial sums of attention over splits of the keys (Triton)."""

from dataclasses import dataclass

import torch

from penstock_engine.kernels.attention_sizes import ITEM_SIZE
from penstock_engine.kernels.attention_tile import pad_head
from penstock_engine.kernels.paged_batch import SplitPlan
from penstock_engine.kernels.runtime import jit, loop_bound, tl

SPLITS_AT_ONCE = 32  # partial sums that a program loads at once, 16 KiB for a head of 128
MAX_PROGRAMS = 8  # of a query block and head; more queries take turns


@dataclass(frozen=True, slots=True)
class PartialSums:
    """Sums of attention over the splits of query blocks, by slot; SplitPlan says which have one.

    sums: float32 [slots, kv_heads, block_rows, head_dim], values weighted by exponentials of scores. norms:
    float32 [slots, kv_heads, block_rows, 2], the largest score, to which the exponentials are relative,
    and their sum.
    """

    sums: torch.Tensor
    norms: torch.Tensor

    @classmethod
    def of(
        cls,
        plan: SplitPlan,
        num_kv_heads: int,
        block_rows: int,
        head_dim: int,
        device: torch.device,
    ) -> "PartialSums":
        """Uninitialized sums for a plan."""
        shape = (2 * plan.num_extra, num_kv_heads, block_rows)
        sums = torch.empty(*shape, head_dim, dtype=torch.float32, device=device)
        return cls(sums, torch.empty(*shape, 2, dtype=torch.float32, device=device))


def merge_splits(
    plan: SplitPlan, partial: PartialSums, out: torch.Tensor, *, group: int, max_queries: int
) -> None:
    """Write the results of query blocks with several splits (Triton).

    out: [tokens, heads, head_dim]. group: query heads per KV head. max_queries: upper bound on the new
    tokens of a sequence; it affects the launch, not the result.
    """
    if not plan.num_extra:
        return
    num_heads, head_dim = out.shape[1:]
    block_rows = partial.sums.shape[2]
    num_programs = min(max_queries, block_rows // group, MAX_PROGRAMS)
    _merge_splits_kernel[(plan.num_extra, num_heads, num_programs)](
        partial.sums,
        partial.norms,
        plan.items,
        out,
        plan.num_extra,
        block_rows,
        NUM_HEADS=num_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        HEAD_PAD=pad_head(head_dim),
        ITEM_SIZE=ITEM_SIZE,
        AT_ONCE=SPLITS_AT_ONCE,
    )


@jit(varying=("num_extra", "block_rows"))
def _merge_splits_kernel(
    partial,
    norms,
    items,
    output,
    num_extra,
    block_rows,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    ITEM_SIZE: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    extra = tl.program_id(0)
    head = tl.program_id(1)
    item = items + extra * ITEM_SIZE
    num_splits = tl.load(item + 7)
    if (tl.load(item) < 0) | (num_splits == 0):
        return
    first_token = tl.load(item + 1)
    num_queries = tl.load(item + 2)
    dim = tl.arange(0, HEAD_PAD)
    is_dim = dim < HEAD_DIM
    # The interpreter makes tensors of variables, so the bounds are given in place.
    for query in range(
        loop_bound(tl.program_id(2)), loop_bound(num_queries), loop_bound(tl.num_programs(2))
    ):
        row = query * GROUP + head % GROUP
        top = head * 0.0 - float("inf")
        total = head * 0.0
        mixed = tl.zeros([HEAD_PAD], tl.float32)
        for start in range(0, loop_bound(num_splits), AT_ONCE):
            split = start + tl.arange(0, AT_ONCE)
            is_split = split < num_splits
            slot = tl.where(split == 0, num_extra + extra, extra + split - 1).to(tl.int64)
            place = (slot * (NUM_HEADS // GROUP) + head // GROUP) * block_rows + row
            largest = tl.load(norms + place * 2, mask=is_split, other=float("-inf"))
            part = tl.load(norms + place * 2 + 1, mask=is_split, other=0.0)
            mask = is_split[:, None] & is_dim[None, :]
            sums_at = partial + place[:, None] * HEAD_DIM + dim[None, :]
            sums = tl.load(sums_at, mask=mask, other=0.0)
            new_top = tl.maximum(top, tl.max(largest, 0))
            shift = tl.where(new_top == float("-inf"), 0.0, new_top)
            decay = tl.exp2(top - shift)
            weight = tl.exp2(largest - shift)
            total = total * decay + tl.sum(weight * part, 0)
            mixed = mixed * decay + tl.sum(weight[:, None] * sums, 0)
            top = new_top
        result = mixed / tl.where(total > 0, total, 1.0)
        out_row = (first_token + query).to(tl.int64) * NUM_HEADS + head
        out_at = output + out_row * HEAD_DIM + dim
        tl.store(out_at, result.to(output.dtype.element_ty), mask=is_dim)
