"""Paged attention with many tiles: which is the fastest, beside the one that the engine chooses."""

from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial

import torch
from benchmarks.gpu.compile_ahead import compile_for
from benchmarks.gpu.context import Context, Record
from benchmarks.gpu.timing import check_device
from benchmarks.gpu.workloads.attention_inputs import (
    Case,
    Heads,
    PoolStore,
    make_inputs,
    placeholder_inputs,
)
from benchmarks.gpu.workloads.attention_launches import attend, max_copies, seconds_of
from benchmarks.gpu.workloads.attention_tiles import tiles_to_try

from penstock_engine.kernels.attention_tile import Tile

NUM_REPORTED = 8  # tiles in a record
MIN_LEFT_S = 1.0  # a sweep ends when less time is left


def compile_tiles(
    cases: Sequence[Case], swept: Sequence[Case], heads: Heads, context: Context
) -> Record:
    """Compile what the cases launch, and all tiles of the swept ones, in parallel."""
    launches: list[Callable[[], object]] = []
    for case in cases:
        tiles = tiles_to_try(case.num_queries, is_small=context.is_small) if case in swept else []
        launches += [partial(_attend_placeholders, case, heads, tile) for tile in (None, *tiles)]
    return compile_for(context, launches)


def _attend_placeholders(case: Case, heads: Heads, tile: Tile | None) -> torch.Tensor:
    return attend(placeholder_inputs(case, heads), 0, tile)


@torch.inference_mode()
def sweep(case: Case, heads: Heads, store: PoolStore, context: Context) -> Record:
    """Seconds of a launch by tile. ratio_to_best: the engine's choice, relative to the fastest tile.

    A tile is [rows of queries, keys, warps, stages]. num_failed: tiles that the device cannot run.
    """
    inputs = make_inputs(case, heads, store.get(case.cache), max_copies=max_copies(context))
    chosen_s = seconds_of(inputs, None, context)
    seconds: dict[Tile, float] = {}
    num_failed = num_left = 0
    for tile in tiles_to_try(case.num_queries, is_small=context.is_small):
        if context.time_left_s() < MIN_LEFT_S:
            num_left += 1
            continue
        try:
            seconds[tile] = seconds_of(inputs, tile, context)
        except Exception as error:  # noqa: BLE001 - as OutOfResources, for too much shared memory
            check_device(context.device)
            num_failed += 1
            print(f"{case.name}: {tile}: {type(error).__name__}: {error}"[:300], flush=True)
    ranked = sorted(seconds, key=seconds.__getitem__)
    best = [{"tile": list(astuple(tile)), "kernel_s": seconds[tile]} for tile in ranked]
    best_s = min([*seconds.values(), chosen_s])
    return {
        "chosen_s": chosen_s,
        "best_s": best_s,
        "ratio_to_best": chosen_s / best_s,
        "tiles": best[:NUM_REPORTED],
        "num_tried": len(seconds),
        "num_failed": num_failed,
        "num_left": num_left,
    }
