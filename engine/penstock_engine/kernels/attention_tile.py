"""Chooses tile sizes and numbers of splits for paged attention. They affect speed, not results."""

from dataclasses import dataclass

import torch

from penstock_engine.kernels.runtime import next_power_of_2, splits_to_fill

MIN_DOT = 16  # smallest side of a matrix product in Triton
MAX_SPLITS = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """Tile of one Triton program: rows of queries, and keys per iteration."""

    block_rows: int
    block_keys: int
    num_warps: int


def choose_tile(
    group: int, max_queries: int, head_pad: int, element_size: int, *, is_quantized: bool
) -> Tile:
    """Choose the largest tile that the queries fill and registers hold.

    More rows per program mean that keys and values are read fewer times. group: query heads per KV
    head. max_queries: of a sequence. element_size: bytes of a query element.
    """
    is_wide = head_pad > 128
    fewest_rows = max(MIN_DOT, next_power_of_2(group))
    if element_size > 2:  # without tensor cores the product itself is the cost
        return Tile(fewest_rows, 16 if is_wide else 32, 4)
    most_rows = 64 if is_wide or is_quantized else 128
    rows = max(fewest_rows, min(next_power_of_2(max_queries * group), most_rows))
    num_warps = 8 if rows * head_pad > 64 * 128 else 4
    return Tile(rows, 32 if is_wide else 64, num_warps)


def choose_num_splits(
    num_programs: int, num_keys: int, block_keys: int, device: torch.device
) -> int:
    """Choose the number of splits of the keys: a power of two that fills the device.

    No split is shorter than two blocks of keys.
    """
    return splits_to_fill(num_programs, min(-(-num_keys // (2 * block_keys)), MAX_SPLITS), device)


def pad_head(head_dim: int) -> int:
    """The head dimension padded to a power of two that Triton can multiply."""
    return max(MIN_DOT, next_power_of_2(head_dim))
