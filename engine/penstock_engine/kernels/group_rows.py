# mypy: allow-incomplete-defs
"""Sorts the rows of a batch by the weights they are multiplied with, in blocks of one group each.

Groups are the experts of a mixture, or the adapters of a batch. Sizes depend on numbers of rows
and groups only, not on who is in which, so that a CUDA graph may replay it.
"""

from dataclasses import dataclass

import torch

from penstock_engine.kernels.runtime import jit, loop_bound, next_power_of_2, tl

SCAN = 1024  # rows read at once


@dataclass(frozen=True, slots=True)
class Groups:
    """rows: int32 [blocks * block_rows], row numbers by group, rising within one; each group is
    padded to whole blocks by num_rows. block_groups: int32 [blocks]: the group of each, -1: none.
    """

    rows: torch.Tensor
    block_groups: torch.Tensor
    block_rows: int
    num_rows: int
    num_groups: int


def group_rows_reference(groups: torch.Tensor, num_groups: int, block_rows: int) -> Groups:
    """groups: integers [rows], each below num_groups; below 0: in no group, sorted to the end."""
    num_rows = len(groups)
    num_blocks = _most_blocks(num_rows, num_groups, block_rows)
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


def group_rows(groups: torch.Tensor, num_groups: int, block_rows: int) -> Groups:
    """As group_rows_reference."""
    num_rows = len(groups)
    num_blocks = _most_blocks(num_rows, num_groups, block_rows)
    rows = torch.empty(num_blocks * block_rows, dtype=torch.int32, device=groups.device)
    block_groups = torch.empty(num_blocks, dtype=torch.int32, device=groups.device)
    _group_rows_kernel[(num_groups + 1,)](
        groups,
        rows,
        block_groups,
        num_rows,
        num_blocks,
        NUM_GROUPS=num_groups,
        BINS=next_power_of_2(num_groups + 2),
        BLOCK_ROWS=block_rows,
        SCAN=SCAN,
    )
    return Groups(rows, block_groups, block_rows, num_rows, num_groups)


def _most_blocks(num_rows: int, num_groups: int, block_rows: int) -> int:
    """Each group that has rows wastes less than a block."""
    most_groups = min(num_rows, num_groups + 1)
    return (num_rows + most_groups * (block_rows - 1)) // block_rows


@jit
def _group_rows_kernel(
    groups,
    rows,
    block_groups,
    num_rows,
    num_blocks,
    NUM_GROUPS: tl.constexpr,
    BINS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    SCAN: tl.constexpr,
):
    """One program for each group, and a last one for the rows of none and for what is left over."""
    group = tl.program_id(0)
    index = tl.arange(0, SCAN)
    bins = tl.arange(0, BINS)
    counts = tl.zeros([BINS], tl.int32)
    for start in range(0, loop_bound(num_rows), SCAN):
        bucket = _load_bucket(groups, start + index, num_rows, NUM_GROUPS, BINS)
        counts += tl.histogram(bucket, BINS)
    padded = tl.cdiv(counts, BLOCK_ROWS) * BLOCK_ROWS
    first = tl.sum(tl.where(bins < group, padded, 0), 0)
    end = first + tl.sum(tl.where(bins == group, padded, 0), 0)
    number = group
    if group == NUM_GROUPS:
        end = num_blocks * BLOCK_ROWS
        number = -1

    # The group's rows in their order, then padding.
    written = first
    for start in range(0, loop_bound(num_rows), SCAN):
        bucket = _load_bucket(groups, start + index, num_rows, NUM_GROUPS, BINS)
        is_own = (bucket == group).to(tl.int32)
        place = written + tl.cumsum(is_own, 0) - 1
        tl.store(rows + place, start + index, mask=is_own != 0)
        written += tl.sum(is_own, 0)
    for start in range(loop_bound(written), loop_bound(end), SCAN):
        tl.store(rows + start + index, num_rows, mask=start + index < end)
    for start in range(loop_bound(first // BLOCK_ROWS), loop_bound(end // BLOCK_ROWS), SCAN):
        tl.store(block_groups + start + index, number, mask=start + index < end // BLOCK_ROWS)


@jit
def _load_bucket(groups, row, num_rows, NUM_GROUPS: tl.constexpr, BINS: tl.constexpr):
    """NUM_GROUPS stands for no group, the last bin for no row."""
    group = tl.load(groups + row, mask=row < num_rows, other=0).to(tl.int32)
    return tl.where(row < num_rows, tl.where(group < 0, NUM_GROUPS, group), BINS - 1)
