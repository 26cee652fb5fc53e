"""Tests of the plan that splits the keys of long sequences over programs."""

import dataclasses
import itertools

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from tests.support.engine.split_plan_reference import (
    PlanSizes,
    longest_split,
    split_plan_reference,
)

from penstock_engine.kernels.attention_sizes import (
    ATTENTION_PROGRAMS_PER_MULTIPROCESSOR,
    max_extra_splits,
    max_query_blocks,
    min_split_blocks,
    partial_sums_bytes,
)
from penstock_engine.kernels.attention_tile import Tile
from penstock_engine.kernels.merge_splits import PartialSums
from penstock_engine.kernels.paged_batch import PagedBatch, SplitPlan
from penstock_engine.kernels.runtime import multiprocessors
from penstock_engine.kernels.split_plan import split_plan

TILE = Tile(16, 32, 4, 3)
GROUP = 4  # query heads per KV head; so a query block has 4 tokens


def make_plan(
    num_queries: list[int] | None,
    lengths: list[int],
    device: str,
    *,
    num_extra: int,
    window: int = 0,
) -> tuple[SplitPlan, list[list[int] | None]]:
    """The kernel's plan with up to num_extra extra items, and the reference's with as many."""
    starts = None
    if num_queries is not None:
        starts = torch.tensor([0, *itertools.accumulate(num_queries)], dtype=torch.int32).to(device)
    counts = num_queries or [1] * len(lengths)
    ends = torch.tensor(lengths, dtype=torch.int32, device=device)
    batch = PagedBatch(ends[:, None], starts, ends, max(counts), max(lengths))
    num_programs = ATTENTION_PROGRAMS_PER_MULTIPROCESSOR * multiprocessors(torch.device(device))
    plan = split_plan(
        batch, sum(counts), TILE, group=GROUP, num_kv_heads=num_programs // num_extra, window=window
    )
    sizes = PlanSizes(
        TILE.block_rows // GROUP, TILE.block_keys, window,
        min_split_blocks(TILE.block_rows, TILE.block_keys), plan.num_extra,
        len(plan.items) - plan.num_extra,
    )  # fmt: skip
    return plan, split_plan_reference(counts, lengths, sizes)


def as_lists(plan: SplitPlan) -> list[list[int] | None]:
    return [None if item[0] < 0 else item for item in plan.items.tolist()]


sequences = st.lists(
    st.integers(0, 3000).flatmap(
        lambda length: st.tuples(st.integers(0, min(length, 40)), st.just(length))
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40)
@given(sequences, st.integers(1, 40), st.sampled_from([0, 1, 50, 700]), st.booleans())
def test_the_kernel_plans_as_its_reference(
    device: str, drawn: list[tuple[int, int]], num_extra: int, window: int, is_decode: bool
) -> None:
    counts, lengths = [count for count, _ in drawn], [length for _, length in drawn]
    if not any(counts) or is_decode:
        counts = [1] * len(lengths)
    plan, expected = make_plan(
        None if is_decode else counts, lengths, device, num_extra=num_extra, window=window
    )
    assert as_lists(plan) == expected


def test_more_sequences_than_are_read_at_once(device: str) -> None:
    lengths = [100_000, *(7 * row % 900 for row in range(1029))]
    plan, expected = make_plan(None, lengths, device, num_extra=60)
    assert as_lists(plan) == expected
    assert plan.items[:, 0].max() == 1029


def test_every_item_may_be_used(device: str) -> None:
    """A sequence has a block of keys more than its splits of equal length have."""
    plan, expected = make_plan(None, [TILE.block_keys * 32 + 1], device, num_extra=8)
    assert as_lists(plan) == expected
    assert None not in expected


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 100_000)), min_size=1, max_size=50),
    st.integers(1, 300),
    st.sampled_from([0, 1, 100, 4096]),
    st.integers(1, 64),
)
def test_the_items_suffice_and_cover_all_keys(
    drawn: list[tuple[int, int]], num_extra: int, window: int, block_queries: int
) -> None:
    """The reference fails if there are too few. Splits are of about the same length."""
    lengths = [max(count, length) for count, length in drawn]
    counts = [count for count, _ in drawn]
    num_blocks = max_query_blocks(sum(counts), len(counts), block_queries)
    sizes = PlanSizes(block_queries, 64, window, 2, num_extra, num_blocks)
    most_keys = 64 * longest_split(counts, lengths, sizes)
    ranges: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for item in split_plan_reference(counts, lengths, sizes):
        if item is not None:
            sequence, _, queries, position, first, last, *_ = item
            assert last - first <= most_keys
            ranges.setdefault((sequence, position), []).append((first, last))
            begin = max(0, position - window + 1) if window else 0
            covered = sorted(ranges[sequence, position])
            assert covered[0][0] >= begin
            assert covered[-1][1] <= position + queries
    for (sequence, position), parts in ranges.items():
        queries = min(block_queries, lengths[sequence] - position)
        begin = max(0, position - window + 1) if window else 0
        ends = [begin, *(last for _, last in sorted(parts))]
        assert sorted(parts) == list(itertools.pairwise(ends))
        assert ends[-1] == position + queries
    assert sum(min(count, 1) for count in counts) == len({sequence for sequence, _ in ranges})


def test_a_plan_is_computed_once_for_equal_layers(device: str) -> None:
    ends = torch.tensor([500], dtype=torch.int32, device=device)
    batch = PagedBatch(ends[:, None], None, ends, 1, 500)
    plans = [
        split_plan(batch, 1, TILE, group=GROUP, num_kv_heads=2, window=window)
        for window in (0, 300, 0)
    ]
    assert plans[0] is plans[2]
    assert len(batch.plans) == 2
    assert not dataclasses.replace(batch, lengths=ends - 1).plans


@pytest.mark.parametrize(
    ("num_query_blocks", "num_key_blocks", "num_kv_heads", "expected"),
    [(1, 2, 8, 0), (1, 3, 8, 2), (1, 2000, 8, 66), (1024, 2000, 8, 66), (1, 2000, 1000, 1)],
)
def test_how_many_extra_splits(
    num_query_blocks: int, num_key_blocks: int, num_kv_heads: int, expected: int
) -> None:
    """Enough to fill the device, but no more than there are keys for."""
    found = max_extra_splits(
        num_query_blocks=num_query_blocks, num_key_blocks=num_key_blocks, min_blocks=2,
        num_kv_heads=num_kv_heads, num_multiprocessors=132,
    )  # fmt: skip
    assert found == expected


@pytest.mark.parametrize("num_kv_heads", [1, 8, 5000])
def test_memory_of_partial_sums_is_counted(num_kv_heads: int) -> None:
    num_extra = max_extra_splits(
        num_query_blocks=512,
        num_key_blocks=2000,
        min_blocks=16,
        num_kv_heads=num_kv_heads,
        num_multiprocessors=188,
    )
    plan = SplitPlan(torch.empty(0), num_extra)
    partial = PartialSums.of(plan, num_kv_heads, 32, 128, torch.device("meta"))
    taken = partial.sums.nbytes + partial.norms.nbytes
    counted = partial_sums_bytes(block_rows=32, num_kv_heads=num_kv_heads, head_dim=128)
    assert counted / 2 < taken <= counted
