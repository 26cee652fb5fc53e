"""Batch layout of paged attention, and how its keys are split over programs."""

from dataclasses import dataclass, field

import torch

# Window, query tokens and keys of a tile, blocks of the shortest split, KV heads, and new tokens: what a plan
# depends on besides the batch.
PlanKey = tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Work items of paged attention; split_plan.py writes them.

    A query block is the next few tokens of one sequence, with which a program attends at once. items: int32
    [num_extra + query blocks, ITEM_SIZE]. The first num_extra items are splits after the first one of their
    query block, consecutive for each block; then comes one item for each query block, its first split. A
    split of several stores partial sums: item e below num_extra in slot e, and the first split of the same
    block in slot num_extra + e, of the block's first such e.

    The numbers of an item are its sequence (-1: an unused item), its first token and number of tokens, the
    position of the first token, the range of keys, its slot (-1: it is the only split), and the number of
    splits to be added up, which only the second split of a block has (others: 0).
    """

    items: torch.Tensor
    num_extra: int


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """New tokens of a batch of sequences, and their block tables.

    block_tables: int32 [sequences, width]; the first ceil(length / block_size) entries of a row are
    read. query_starts: int32 [sequences + 1], cumulative numbers of new tokens, starting at 0; None:
    one new token for each sequence. lengths: int32 [sequences], number of tokens with new ones
    included; the last query is at position length - 1. max_queries, max_length: upper bounds on the
    new tokens of a sequence and on lengths, known on the host; they affect the launch, not the result.
    plans: of these lengths, added by split_plan and shared by the layers of a step.
    """

    block_tables: torch.Tensor
    query_starts: torch.Tensor | None
    lengths: torch.Tensor
    max_queries: int
    max_length: int
    # A replaced copy starts without any, as its lengths may differ.
    plans: dict[PlanKey, SplitPlan] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
