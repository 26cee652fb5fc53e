"""Tiles of paged attention to try, the ones first that are expected to be fast."""

import itertools

from penstock_engine.kernels.attention_tile import Tile

# Rows of queries, keys, warps and stages.
Choices = tuple[tuple[int, ...], ...]
DECODE: Choices = ((16,), (64, 32, 128), (4, 8, 2), (4, 3, 5, 2, 6))
PROMPT: Choices = ((128, 64), (64, 128, 32), (8, 4), (3, 4, 2))
SMALL_TILES = [Tile(16, 32, 4, 2), Tile(16, 16, 4, 3)]


def tiles_to_try(num_queries: int, *, is_small: bool) -> list[Tile]:
    """num_queries: new tokens of a sequence. is_small: two tiles for the interpreter."""
    if is_small:
        return SMALL_TILES
    choices = DECODE if num_queries == 1 else PROMPT
    # Tiles that differ in one number from the first choice of each come before those that differ in more.
    ranked = itertools.product(*(enumerate(values) for values in choices))
    in_order = sorted(ranked, key=lambda ranks: sum(rank for rank, _ in ranks))
    return [Tile(*(value for _, value in ranks)) for ranks in in_order]
