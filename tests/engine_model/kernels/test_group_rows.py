"""Tests of the kernel that groups rows by expert or adapter."""

import pytest
import torch
from tests.support.engine.kernel_references import group_rows_reference

from penstock_engine.kernels.group_rows import group_rows


@pytest.mark.parametrize("block_rows", [16, 64])
@pytest.mark.parametrize(
    ("num_rows", "num_groups", "lowest"),
    [(1, 1, 0), (5, 3, -1), (100, 8, -1), (40, 130, 0), (1100, 3, -1), (2500, 8, 0)],
)
def test_equals_the_reference(
    num_rows: int, num_groups: int, lowest: int, block_rows: int, device: str
) -> None:
    torch.manual_seed(num_rows)
    groups = torch.randint(lowest, num_groups, (num_rows,), device=device)
    expected = group_rows_reference(groups, num_groups, block_rows)
    actual = group_rows(groups, num_groups, block_rows)
    assert torch.equal(actual.rows, expected.rows)
    assert torch.equal(actual.block_groups, expected.block_groups)


@pytest.mark.parametrize("only", [-1, 0, 3])
def test_all_rows_in_one_group_or_none(only: int, device: str) -> None:
    groups = torch.full((33,), only, device=device)
    expected = group_rows_reference(groups, 4, 16)
    actual = group_rows(groups, 4, 16)
    assert torch.equal(actual.rows, expected.rows)
    assert torch.equal(actual.block_groups, expected.block_groups)


def test_every_row_is_in_one_block_of_its_group() -> None:
    torch.manual_seed(1)
    groups = torch.randint(-1, 5, (77,))
    grouped = group_rows_reference(groups, 5, 16)
    seen = []
    for rows, group in zip(grouped.rows.view(-1, 16), grouped.block_groups, strict=True):
        real = rows[rows < 77].tolist()
        assert all(groups[row] == group for row in real)
        seen += real
    assert sorted(seen) == list(range(77))
