"""Tests of the tiles of paged attention."""

import pytest

from penstock_engine.kernels.attention_tile import TILE_TOKENS, Tile, choose_tile

LARGE, SMALL = 227, 99  # KiB of shared memory, of an H100 and of an L4


@pytest.mark.parametrize(
    ("group", "max_queries", "head_dim", "item_bytes", "cache_item_bytes", "shared_kib", "tile"),
    [
        (4, 1, 128, 2, 2, LARGE, Tile(16, 64, 4, 3)),
        (4, 1, 64, 2, 2, SMALL, Tile(16, 64, 4, 4)),
        (4, 1, 64, 2, 1, SMALL, Tile(16, 64, 4, 6)),
        (20, 1, 128, 2, 2, LARGE, Tile(32, 64, 4, 3)),
        (4, 8, 128, 2, 2, LARGE, Tile(32, 64, 4, 3)),
        (4, 9, 128, 2, 2, LARGE, Tile(128, 64, 8, 3)),
        (4, 512, 128, 2, 1, LARGE, Tile(64, 64, 4, 3)),
        (4, 512, 256, 2, 2, LARGE, Tile(64, 32, 8, 3)),
        (4, 512, 256, 2, 2, SMALL, Tile(64, 32, 8, 2)),
        (4, 1, 512, 2, 2, SMALL, Tile(16, 16, 4, 3)),
        (4, 512, 64, 4, 4, LARGE, Tile(16, 32, 4, 4)),
        (4, 512, 128, 4, 4, LARGE, Tile(16, 16, 4, 4)),
        (4, 512, 256, 4, 4, LARGE, Tile(16, 16, 4, 3)),
        (200, 1, 64, 2, 2, LARGE, Tile(256, 64, 8, 4)),
    ],
)
def test_what_a_program_holds(
    group: int,
    max_queries: int,
    head_dim: int,
    item_bytes: int,
    cache_item_bytes: int,
    shared_kib: int,
    tile: Tile,
) -> None:
    chosen = choose_tile(group, max_queries, head_dim, item_bytes, cache_item_bytes, shared_kib)
    assert chosen == tile


@pytest.mark.parametrize("group", [1, 4, 16, 71])
@pytest.mark.parametrize("shape", [(16, 2, 1), (64, 2, 2), (128, 2, 1), (256, 2, 2), (512, 4, 4)])
def test_a_warm_up_meets_every_tile(group: int, shape: tuple[int, int, int]) -> None:
    tiles = {choose_tile(group, tokens, *shape, LARGE) for tokens in range(1, 9000)}
    assert tiles == {choose_tile(group, tokens, *shape, LARGE) for tokens in TILE_TOKENS}
