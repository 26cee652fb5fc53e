"""Launches of the engine's paged attention, and their times."""

from collections.abc import Iterator
from functools import partial

import torch
from benchmarks.gpu.context import Context
from benchmarks.gpu.timing import seconds_per_launch
from benchmarks.gpu.workloads.attention_inputs import MAX_COPIES, Inputs

from penstock_engine.kernels.attention_tile import Tile
from penstock_engine.kernels.paged_attention import paged_attention

MIN_LAUNCHES = 8  # in a recorded graph


def attend(inputs: Inputs, index: int, tile: Tile | None = None) -> torch.Tensor:
    """Attend with the engine's kernel over one of the batches. tile: None: the engine's choice."""
    return paged_attention(
        inputs.query, inputs.pool.numbers, inputs.batches[index], inputs.heads.head_dim**-0.5,
        kv_scales=inputs.pool.scales, tile=tile,
    )  # fmt: skip


def seconds_of(inputs: Inputs, tile: Tile | None, context: Context) -> float:
    """Seconds of a launch."""
    works = [partial(attend, inputs, index, tile) for index in rotation(inputs, context)]
    return seconds_per_launch(works, context.device)


def max_copies(context: Context) -> int:
    """Most copies of a case's pages."""
    return 1 if context.is_small else MAX_COPIES


def rotation(inputs: Inputs, context: Context) -> Iterator[int]:
    """Indices of the batches of the launches in a graph: each batch in turn, a few at least."""
    num_batches = len(inputs.batches)
    least = 1 if context.is_small else MIN_LAUNCHES
    for index in range(max(num_batches, least)):
        yield index % num_batches
