"""Chooses tiles for paged attention. They affect speed, not results."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from penstock_engine.kernels.attention_sizes import MIN_DOT, MOST_ROWS, fewest_rows
from penstock_engine.kernels.runtime import next_power_of_2

# New tokens of a sequence that fit into the tile of small chunks, such as drafts.
SMALL_CHUNK_TOKENS = 8
# Numbers of new tokens of a sequence that select each tile. A warm-up compiles all kernels of attention with
# these, if its sequences end at the longest context, so that their keys may be split.
TILE_TOKENS = (1, SMALL_CHUNK_TOKENS, SMALL_CHUNK_TOKENS + 1)


@dataclass(frozen=True, slots=True)
class Tile:
    """Tile of one Triton program: rows of queries, and keys per iteration.

    num_stages: Triton's number of stages of the loop over keys. While an iteration computes, the keys and
    values of the num_stages - 2 following ones are loaded, so 2 means that loads and products alternate.
    """

    block_rows: int
    block_keys: int
    num_warps: int
    num_stages: int


# num_stages by the KiB of keys and values that an iteration loads, for single tokens and drafts, which wait
# for memory. About 32 KiB are in flight for each program. Of those of single tokens (70 KiB each), three fit
# into the 228 KiB of a multiprocessor of sm_90, two into the 164 KiB of sm_80, and one where a program may
# have 99 KiB (sm_86, sm_89, sm_120).
STAGES_BY_KIB = {64: 2, 32: 3, 16: 4, 8: 6}
# Chunks wait for products, and one iteration ahead is enough. Their programs take at most 128 KiB on sm_90
# and sm_100, whose products read shared memory for longer, and 96 KiB elsewhere.
CHUNK_STAGES = 3
# But with wide heads they take 100 KiB elsewhere. Where that is too much they load nothing ahead: 68 KiB.
WIDE_CHUNK_KIB = 128
ASSUMED_SHARED_KIB = 227  # of an H100; assumed where there is no device


def choose_tile(
    group: int,
    max_queries: int,
    head_dim: int,
    item_bytes: int,
    cache_item_bytes: int,
    shared_kib: int,
) -> Tile:
    """Choose one of at most three tiles: for single tokens, small chunks and other chunks.

    More rows per program mean that keys and values are read fewer times. group: query heads per KV
    head. max_queries: new tokens of a sequence. item_bytes, cache_item_bytes: of an element of a query, and
    of the KV cache. shared_kib: shared memory that a program may have.
    """
    head_pad = pad_head(head_dim)
    is_wide, is_quantized = head_pad > 128, cache_item_bytes != item_bytes
    rows, keys = fewest_rows(group), min(64, max(MIN_DOT, 64 * 128 // head_pad))
    if item_bytes > 2:  # without tensor cores the product itself is the cost, and needs registers
        most_rows, keys = rows, 32 if head_pad < 128 else MIN_DOT
    else:
        most_rows = max(rows, MOST_ROWS // 2 if is_wide or is_quantized else MOST_ROWS)
    loaded_kib = 2 * keys * head_pad * cache_item_bytes // 1024
    stages = STAGES_BY_KIB[min(64, max(8, loaded_kib))]
    if max_queries > SMALL_CHUNK_TOKENS:
        rows = most_rows
    elif max_queries > 1:
        rows = min(next_power_of_2(SMALL_CHUNK_TOKENS * group), most_rows)
    if rows > fewest_rows(group) and rows == most_rows:
        is_large = is_wide and not is_quantized
        stages = 2 if is_large and shared_kib < WIDE_CHUNK_KIB else CHUNK_STAGES
    return Tile(rows, keys, 8 if rows * head_pad > 64 * 128 else 4, stages)


@cache
def shared_memory_kib(device: torch.device) -> int:
    """Shared memory that a program may have on a CUDA device; that of an H100 for the CPU."""
    if device.type != "cuda":
        return ASSUMED_SHARED_KIB
    properties: Any = torch.cuda.get_device_properties(device)  # torch's stubs lack the field
    return int(properties.shared_memory_per_block_optin) // 1024


def pad_head(head_dim: int) -> int:
    """The head dimension padded to a power of two that Triton can multiply."""
    return max(MIN_DOT, next_power_of_2(head_dim))
