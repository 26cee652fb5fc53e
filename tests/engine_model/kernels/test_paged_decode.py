import pytest
import torch

from penstock_engine.kernels.paged_decode import (
    choose_num_splits,
    paged_decode,
    paged_decode_reference,
)

# Of the largest output, about 1: rounding of the outputs, and of the weights to the values' type.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def check(
    device: str, dtype: torch.dtype, lengths: list[int], *, num_kv_heads: int, group: int,
    head_dim: int, block_size: int,
) -> None:  # fmt: skip
    torch.manual_seed(sum(lengths))
    num_blocks = sum(-(-length // block_size) for length in lengths) + 3
    shape = (2, num_blocks, block_size, num_kv_heads, head_dim)
    cache = torch.randn(shape, device=device).to(dtype)
    query = torch.randn(len(lengths), num_kv_heads * group, head_dim, device=device).to(dtype)
    width = -(-max(lengths) // block_size)
    shuffled = iter(torch.randperm(num_blocks).tolist())
    # Entries behind a sequence's own blocks point outside the pool: they must not be read.
    tables = torch.full((len(lengths), width), 2**30, dtype=torch.int32)
    for row, length in enumerate(lengths):
        for column in range(-(-length // block_size)):
            tables[row, column] = next(shuffled)
    tables = tables.to(device)
    ends = torch.tensor(lengths, dtype=torch.int32, device=device)
    scale = head_dim**-0.5
    safe_tables = tables.where(tables < num_blocks, 0)
    expected = paged_decode_reference(query, cache, safe_tables, ends, scale)
    actual = paged_decode(query, cache, tables, ends, scale, max(lengths))
    torch.testing.assert_close(actual, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_head_sizes_block_sizes_and_types(
    head_dim: int, block_size: int, dtype: torch.dtype, device: str
) -> None:
    """With a group of three heads, as no power of two is."""
    check(
        device, dtype, [1, block_size, 67], num_kv_heads=2, group=3,
        head_dim=head_dim, block_size=block_size,
    )  # fmt: skip


@pytest.mark.parametrize("group", [1, 2, 5, 7, 16, 20])
def test_group_sizes(group: int, device: str) -> None:
    check(
        device, torch.float32, [40, 3], num_kv_heads=1, group=group, head_dim=64, block_size=16
    )  # fmt: skip


@pytest.mark.parametrize(
    "lengths", [[1], [2], [31], [32], [33], [64, 65], [1, 1000], [2049], [1, 17, 500, 1500]]
)
def test_lengths(lengths: list[int], device: str) -> None:
    """Around the tile, around the split, and short ones beside long ones (empty splits)."""
    check(
        device, torch.float32, lengths, num_kv_heads=2, group=2, head_dim=64, block_size=16
    )  # fmt: skip


def test_large_scores_do_not_overflow(device: str) -> None:
    """The running maximum keeps exponentials at most 1, across tiles and splits."""
    cache = torch.randn(2, 16, 16, 1, 64, device=device) * 30
    query = torch.randn(1, 4, 64, device=device) * 30
    tables = torch.arange(16, dtype=torch.int32, device=device)[None]
    ends = torch.tensor([250], dtype=torch.int32, device=device)
    expected = paged_decode_reference(query, cache, tables, ends, 1.0)
    actual = paged_decode(query, cache, tables, ends, 1.0, 250)
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(
    ("num_programs", "max_length", "num_splits"),
    [(1, 1, 1), (1, 64, 1), (1, 65, 2), (1, 100_000, 16), (64, 4096, 4), (1024, 4096, 1)],
)
def test_how_many_splits(num_programs: int, max_length: int, num_splits: int) -> None:
    """Enough to fill the device, but none that is hardly worth its launch."""
    assert choose_num_splits(num_programs, max_length) == num_splits
