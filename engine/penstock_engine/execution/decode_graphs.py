"""Replays decode steps as CUDA graphs, because a small model spends most of a decode step on launches.

A step is padded to the next of a few batch sizes. A padding row has token 0, writes no keys and values,
attends to nothing, and its output is ignored. All sizes are recorded at the start: a capture takes longer
than many steps, and the step of a user must not wait for it.

The capture itself (kernels/cuda_graph.py) runs only on CUDA. Sizes, buffers and padding do not depend
on the recorder, and are tested with one that repeats the computation.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from penstock_engine.core.step import ScheduledSequence
from penstock_engine.execution.graph_sizes import input_numbers, padded_size
from penstock_engine.kernels.cuda_graph import Compute, Recorder
from penstock_engine.kernels.paged_batch import PagedBatch
from penstock_engine.kernels.transfer import host_buffer
from penstock_engine.layers.attention import StepAttention
from penstock_engine.layers.paged_attention import PagedAttention
from penstock_engine.layers.pending_tokens import fill_pending

logger = logging.getLogger(__name__)

NOWHERE = -1

Forward = Callable[[torch.Tensor, torch.Tensor, StepAttention], torch.Tensor]


class DecodeBuffers:
    """Input tensors of decode steps, at fixed addresses for each size.

    inputs: int32, what one copy from the host brings for a step of `size` rows: [3, size] int64 token ids,
    positions and slots; [size] lengths; [sequences, blocks of the longest] block tables. tables: int32
    [max_rows, blocks of max_model_len], to which the block tables are copied on the device, because the
    kernels read rows of a fixed stride.
    """

    def __init__(self, max_rows: int, max_model_len: int, block_size: int, device: str) -> None:
        self._max_length = max_model_len
        self._block_size = block_size
        width = -(-max_model_len // block_size)
        self._inputs = torch.zeros(input_numbers(max_rows, width), dtype=torch.int32, device=device)
        self._tables = torch.zeros(max_rows, width, dtype=torch.int32, device=device)

    def fill(
        self, sequences: Sequence[ScheduledSequence], size: int, sampled: torch.Tensor | None = None
    ) -> None:
        """Copy the inputs of a step to the buffers; the remaining rows up to `size` become padding.

        sequences: with one token each, at most `size` of them. sampled: int64 [rows], sampled tokens that
        replace placeholders among the tokens.
        """
        block_size, num_rows = self._block_size, len(sequences)
        widths = [-(-sequence.end // block_size) for sequence in sequences]
        width = max(widths, default=0)
        first_table = input_numbers(size, 0)
        total = first_table + num_rows * width
        host = host_buffer((total,), torch.int32, self._inputs.device)
        array = host.numpy()
        array[:] = 0
        numbers = array[: 6 * size].view(np.int64).reshape(3, size)
        numbers[2] = NOWHERE
        numbers[0, :num_rows] = [sequence.token_ids[0] for sequence in sequences]
        numbers[1, :num_rows] = [sequence.start for sequence in sequences]
        numbers[2, :num_rows] = [
            s.block_table[s.start // block_size] * block_size + s.start % block_size
            for s in sequences
        ]
        array[6 * size :][:num_rows] = [sequence.end for sequence in sequences]
        tables = array[first_table:].reshape(num_rows, width)
        for table, sequence, own_width in zip(tables, sequences, widths, strict=True):
            table[:own_width] = sequence.block_table[:own_width]
        sent = self._inputs[:total].copy_(host, non_blocking=True)
        self._tables[:num_rows, :width].copy_(sent[first_table:].view(num_rows, width))
        if sampled is not None:
            fill_pending(self._numbers(size)[0], sampled)

    def compute(self, forward: Forward, size: int) -> torch.Tensor:
        """Run the forward pass of the buffered step."""
        token_ids, positions, slots = self._numbers(size)
        lengths = self._inputs[6 * size :][:size]
        batch = PagedBatch(self._tables[:size], None, lengths, 1, self._max_length)
        return forward(token_ids, positions, PagedAttention(batch, slots))

    def _numbers(self, size: int) -> torch.Tensor:
        """Token ids, positions and slots, int64 [3, size]."""
        return self._inputs[: 6 * size].view(torch.int64).view(3, size)


class DecodeGraphs:
    """Recorded forward passes of decode steps, by batch size."""

    def __init__(
        self, forward: Forward, buffers: DecodeBuffers, sizes: Sequence[int], recorder: Recorder
    ) -> None:
        """forward: maps token ids, positions and attention to hidden states. buffers: of the largest of
        the sizes, which are ascending."""
        self._forward = forward
        self._buffers = buffers
        self._sizes = sizes
        self._record = recorder
        self._recorded: dict[int, Compute] = {}

    def record(self) -> None:
        """Record all sizes, at the start. Steps of a size that cannot be recorded are launched.

        The largest goes first, so that the others fit into the memory that it leaves in the pool.
        """
        started_s = time.monotonic()
        for size in reversed(self._sizes):
            self._buffers.fill((), size)
            compute = partial(self._buffers.compute, self._forward, size)
            try:
                self._recorded[size] = self._record(compute)
            except RuntimeError as error:  # torch.OutOfMemoryError is one
                logger.warning("decode steps of %d rows are not recorded: %s", size, error)
        logger.info(
            "recorded decode steps of %d of %d batch sizes in %.1f s",
            len(self._recorded), len(self._sizes), time.monotonic() - started_s,
        )  # fmt: skip

    def run(
        self, sequences: Sequence[ScheduledSequence], sampled: torch.Tensor | None = None
    ) -> torch.Tensor | None:
        """Compute a decode step. Returns hidden states [sequences, hidden_size], valid until the next.

        Returns None for a step with chunks or adapters, or of a size that is not recorded. sampled:
        sampled tokens that replace placeholders.
        """
        size = padded_size(len(sequences))
        if size not in self._recorded or not all(map(_is_plain, sequences)):
            return None
        self._buffers.fill(sequences, size, sampled)
        return self._recorded[size]()[: len(sequences)]


def _is_plain(sequence: ScheduledSequence) -> bool:
    """Whether a sequence has a single token and no adapter, so that its launches are always the same."""
    return sequence.num_tokens == 1 and not sequence.adapter
