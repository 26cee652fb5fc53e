"""Attention of one new token for each sequence."""

import pytest
import torch
from tests.support.engine.kernel_references import paged_attention_reference

from penstock_engine.kernels.paged_attention import paged_attention
from penstock_engine.kernels.paged_batch import PagedBatch


def check(device: str, lengths: list[int], *, group: int, window: int = 0) -> None:
    torch.manual_seed(sum(lengths))
    num_blocks = sum(-(-length // 16) for length in lengths)
    cache = torch.randn(2, num_blocks, 16, 2, 64, device=device)
    query = 4 * torch.randn(len(lengths), 2 * group, 64, device=device)
    tables = torch.randperm(num_blocks, device=device).to(torch.int32)[None].repeat(len(lengths), 1)
    ends = torch.tensor(lengths, dtype=torch.int32, device=device)
    batch = PagedBatch(tables, None, ends, 1, max(lengths))
    expected = paged_attention_reference(query, cache, batch, 0.125, window=window)
    actual = paged_attention(query, cache, batch, 0.125, window=window)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("group", [1, 5, 16, 20])
def test_group_sizes(group: int, device: str) -> None:
    check(device, [40, 3], group=group)


@pytest.mark.parametrize(
    "lengths",
    [
        [1],
        [31],
        [32],
        [33],
        [64, 65],
        [1, 1000],
        [2049],
        [0, 17, 0, 500, 1500],
        [0, 0, 0],
        [9, 20, 4000, *range(12)],
    ],
)
@pytest.mark.parametrize("window", [0, 200])
def test_lengths(lengths: list[int], window: int, device: str) -> None:
    """Around the tile, around the split, and short ones beside long ones, and nothing but padding."""
    check(device, lengths, group=2, window=window)


def test_large_scores_do_not_overflow(device: str) -> None:
    """The running maximum keeps exponentials at most 1, across tiles and splits."""
    cache = torch.randn(2, 16, 16, 1, 64, device=device) * 30
    query = torch.randn(1, 4, 64, device=device) * 30
    tables = torch.arange(16, dtype=torch.int32, device=device)[None]
    ends = torch.tensor([250], dtype=torch.int32, device=device)
    batch = PagedBatch(tables, None, ends, 1, 250)
    expected = paged_attention_reference(query, cache, batch, 1.0)
    actual = paged_attention(query, cache, batch, 1.0)
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-4)
