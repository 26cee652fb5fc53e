"""How the work of paged attention is cut into programs. Chooses how to compute, not what."""

from dataclasses import dataclass

from penstock_engine.kernels.runtime import next_power_of_2, splits_to_fill

MIN_DOT = 16  # smallest side of a matrix product in Triton
MAX_SPLITS = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """What a program holds at once: rows of queries, and keys."""

    block_rows: int
    block_keys: int
    num_warps: int


def choose_tile(
    group: int, max_queries: int, head_pad: int, element_size: int, *, is_quantized: bool
) -> Tile:
    """As many rows as the queries fill and registers hold: each row more is one read less."""
    is_wide = head_pad > 128
    fewest_rows = max(MIN_DOT, next_power_of_2(group))
    if element_size > 2:  # without tensor cores the product itself is the cost
        return Tile(fewest_rows, 16 if is_wide else 32, 4)
    most_rows = 64 if is_wide or is_quantized else 128
    rows = max(fewest_rows, min(next_power_of_2(max_queries * group), most_rows))
    num_warps = 8 if rows * head_pad > 64 * 128 else 4
    return Tile(rows, 32 if is_wide else 64, num_warps)


def choose_num_splits(num_programs: int, num_keys: int, block_keys: int) -> int:
    """A power of two: enough to fill the device, but no split shorter than two blocks of keys."""
    return splits_to_fill(num_programs, min(-(-num_keys // (2 * block_keys)), MAX_SPLITS))


def pad_head(head_dim: int) -> int:
    return max(MIN_DOT, next_power_of_2(head_dim))
