"""Reference of the plan that splits attention's keys over programs."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanSizes:
    """Sizes that a plan depends on besides the sequences. window: 0: none. min_blocks: of keys in a split."""

    block_queries: int
    block_keys: int
    window: int
    min_blocks: int
    num_extra: int
    num_query_blocks: int


def split_plan_reference(
    num_queries: Sequence[int], lengths: Sequence[int], sizes: PlanSizes
) -> list[list[int] | None]:
    """The work items as lists of numbers, in the order of SplitPlan; None: unused.

    num_queries, lengths: of each sequence. Fails if there are more items than places for them.
    """
    split_blocks = longest_split(num_queries, lengths, sizes)
    extra: list[list[int] | None] = []
    first: list[list[int] | None] = []
    token = 0
    for sequence, (count, length) in enumerate(zip(num_queries, lengths, strict=True)):
        most_extra = max(_most_blocks(count, length, sizes) - 1, 0) // split_blocks
        for query in range(0, count, sizes.block_queries):
            queries = min(sizes.block_queries, count - query)
            position = length - count + query
            end = max(position + queries, 0)
            begin = max(position - sizes.window + 1, 0) if sizes.window else 0
            num_blocks = -(-(end - begin) // sizes.block_keys)
            num_splits = max(1, -(-num_blocks // split_blocks))
            split_keys = -(-num_blocks // num_splits) * sizes.block_keys
            slots = [-1]
            if num_splits > 1:
                extras = range(len(extra), len(extra) + num_splits - 1)
                slots = [sizes.num_extra + len(extra), *extras]
            items: list[list[int] | None] = [None] * (1 + most_extra)
            for split, slot in enumerate(slots):
                key = begin + split * split_keys
                items[split] = [
                    sequence, token + query, queries, position, key, min(key + split_keys, end),
                    slot, num_splits if split == 1 else 0,
                ]  # fmt: skip
            first.append(items[0])
            extra += items[1:]
        token += count
    assert len(extra) <= sizes.num_extra
    assert len(first) <= sizes.num_query_blocks
    extra += [None] * (sizes.num_extra - len(extra))
    return extra + first + [None] * (sizes.num_query_blocks - len(first))


def longest_split(num_queries: Sequence[int], lengths: Sequence[int], sizes: PlanSizes) -> int:
    """Blocks of keys of the longest split; without extra items, of any query block."""
    sequences = list(zip(num_queries, lengths, strict=True))
    most = [_most_blocks(count, length, sizes) for count, length in sequences]
    if not sizes.num_extra:
        return max([1, *most])
    total = sum(
        -(-count // sizes.block_queries) * max(blocks - 1, 0)
        for count, blocks in zip(num_queries, most, strict=True)
    )
    return max(sizes.min_blocks, -(-total // sizes.num_extra))


def _most_blocks(count: int, length: int, sizes: PlanSizes) -> int:
    """Upper bound on the blocks of keys that a query block of a sequence sees."""
    visible = length
    if sizes.window:
        visible = min(length, sizes.window - 1 + min(count, sizes.block_queries))
    return -(-visible // sizes.block_keys)
