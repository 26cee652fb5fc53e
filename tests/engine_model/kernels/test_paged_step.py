"""Tests of the attention of a step: launches of its single tokens and of its chunks."""

import itertools

import pytest
import torch
from tests.support.engine.kernel_references import paged_attention_reference

from penstock_engine.kernels import paged_attention as kernels
from penstock_engine.kernels.attention_tile import Tile
from penstock_engine.kernels.paged_batch import PagedBatch
from penstock_engine.layers import paged_attention as layers
from penstock_engine.layers.attention import QKV, AttentionShape, Span
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.paged_attention import PagedAttention

BLOCK_SIZE = 8


def make_spans(new_tokens_and_ends: list[tuple[int, int]]) -> list[Span]:
    spans, first = [], 0
    for num_tokens, end in new_tokens_and_ends:
        blocks = range(first, first + -(-end // BLOCK_SIZE))
        spans.append(Span(end - num_tokens, end, tuple(blocks)))
        first = blocks.stop
    return spans


def as_one_batch(spans: list[Span], device: str) -> PagedBatch:
    width = max(len(span.block_table) for span in spans)
    tables = [[*span.block_table, *[0] * (width - len(span.block_table))] for span in spans]
    starts = [0, *itertools.accumulate(span.num_tokens for span in spans)]

    def integers(values: list[int] | list[list[int]]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    lengths = integers([span.end for span in spans])
    return PagedBatch(integers(tables), integers(starts), lengths, 0, 0)


@pytest.mark.parametrize("window", [None, 30])
@pytest.mark.parametrize(
    ("new_tokens_and_ends", "launched"),
    [
        ([(1, 5), (1, 700)], [1]),
        ([(1, 5), (1, 700), (5, 40), (3, 400)], [1, 5]),  # drafts
        ([(1, 1), (1, 30), (1, 300), (20, 20), (1, 60), (40, 450)], [1, 40]),
        ([(9, 300)], [9]),
    ],
)
def test_single_tokens_have_a_launch_of_their_own(
    new_tokens_and_ends: list[tuple[int, int]], launched: list[int], window: int | None,
    device: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    torch.manual_seed(0)
    most_queries = []

    def attend(
        query: torch.Tensor, cache: torch.Tensor, batch: PagedBatch, scale: float, **options
    ):  # type: ignore[no-untyped-def]
        most_queries.append(batch.max_queries)
        return kernels.paged_attention(query, cache, batch, scale, **options)

    monkeypatch.setattr(layers, "paged_attention", attend)
    spans = make_spans(new_tokens_and_ends)
    num_blocks = spans[-1].block_table[-1] + 1
    cache = KVCache(torch.randn(2, num_blocks, BLOCK_SIZE, 2, 16, device=device), None)
    num_tokens = sum(span.num_tokens for span in spans)
    heads = QKV(*(torch.randn(num_tokens, size, 16, device=device) for size in (6, 2, 2)))
    slots = torch.tensor(
        [
            span.block_table[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
            for span in spans
            for position in range(span.start, span.end)
        ],
        device=device,
    )
    step = PagedAttention.of(spans, slots, BLOCK_SIZE)
    actual = step(heads, cache, AttentionShape(0.3, window_tokens=window))
    expected = paged_attention_reference(
        heads.q, cache.numbers, as_one_batch(spans, device), 0.3, window=window or 0
    )
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    assert most_queries == launched


@pytest.mark.parametrize("tile", [Tile(16, 16, 4, 2), Tile(32, 32, 4, 3), Tile(64, 16, 8, 4)])
def test_a_tile_may_be_chosen_by_the_caller(tile: Tile, device: str) -> None:
    torch.manual_seed(0)
    spans = make_spans([(20, 300), (3, 90)])
    batch = as_one_batch(spans, device)
    batch = PagedBatch(batch.block_tables, batch.query_starts, batch.lengths, 20, 300)
    cache = torch.randn(2, 50, BLOCK_SIZE, 2, 16, device=device)
    query = torch.randn(23, 6, 16, device=device)
    actual = kernels.paged_attention(query, cache, batch, 0.3, tile=tile)
    expected = paged_attention_reference(query, cache, batch, 0.3)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    ((_, block_queries, block_keys, *_),) = batch.plans
    assert (block_queries, block_keys) == (tile.block_rows // 3, tile.block_keys)
