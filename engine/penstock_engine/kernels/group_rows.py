# mypy: allow-incomplete-defs
"""Sorts the rows of a batch by group, in blocks of one group each (Triton).

Groups are the experts of a mixture-of-experts layer, or the LoRA adapters of a batch. The output
shapes depend only on the numbers of rows and groups, so that a CUDA graph can replay it.
"""

from dataclasses import dataclass

import torch

from penstock_engine.kernels.runtime import jit, loop_bound, next_power_of_2, tl

SCAN = 1024  # rows read at once


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows of a batch sorted by group, in blocks of block_rows rows.

    rows: int32 [blocks * block_rows], row indices by group, ascending within a group; each group is
    padded to whole blocks with the value num_rows. block_groups: int32 [blocks], the group of each
    block; -1: none.
    """

    rows: torch.Tensor
    block_groups: torch.Tensor
    block_rows: int
    num_rows: int
    num_groups: int


def group_rows(groups: torch.Tensor, num_groups: int, block_rows: int) -> Groups:
    """Sort row indices by group, in blocks of block_rows (Triton).

    groups: integers [rows], each below num_groups; negative: in no group, sorted to the end.
    """
    num_rows = len(groups)
    num_blocks = max_num_blocks(num_rows, num_groups, block_rows)
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


def max_num_blocks(num_rows: int, num_groups: int, block_rows: int) -> int:
    """Upper bound on the number of blocks: each group that has rows pads less than one block."""
    most_groups = min(num_rows, num_groups + 1)
    return (num_rows + most_groups * (block_rows - 1)) // block_rows


@jit(varying=("num_rows", "num_blocks"))
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
    """Sorts the rows of one group. The last program takes rows of no group, and fills unused blocks."""
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

    # Store the group's rows in ascending order, then padding.
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
    """Load groups of rows; NUM_GROUPS for rows of no group, the last bin beyond the last row."""
    group = tl.load(groups + row, mask=row < num_rows, other=0).to(tl.int32)
    return tl.where(row < num_rows, tl.where(group < 0, NUM_GROUPS, group), BINS - 1)
