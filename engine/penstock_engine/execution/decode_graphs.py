"""Replays decode steps as CUDA graphs, because a small model spends most of a decode step on launches.

A step is padded to the next of a few batch sizes. A padding row has token 0, writes no keys and values,
attends to nothing, and its output is ignored. A size is recorded when a step first needs it: most sizes
never are, and recording all would delay the start. The recording step computes the same keys and values
twice, which is harmless.

The capture itself (kernels/cuda_graph.py) runs only on CUDA. Sizes, buffers and padding do not depend
on the recorder, and are tested with one that repeats the computation.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from penstock_engine.core.step import ScheduledSequence
from penstock_engine.execution.graph_sizes import padded_size
from penstock_engine.kernels.cuda_graph import Compute, Recorder
from penstock_engine.kernels.paged_batch import PagedBatch
from penstock_engine.kernels.transfer import send
from penstock_engine.layers.attention import StepAttention, pad_tables
from penstock_engine.layers.paged_attention import PagedAttention
from penstock_engine.layers.pending_tokens import fill_pending

NOWHERE = -1

Forward = Callable[[torch.Tensor, torch.Tensor, StepAttention], torch.Tensor]


class DecodeBuffers:
    """Input tensors of decode steps, at fixed addresses for each size.

    numbers: int64 [3 * size], token ids, positions and slots. lengths: int32 [size]. tables: int32
    [size, blocks of the longest sequence].
    """

    def __init__(self, max_rows: int, max_model_len: int, block_size: int, device: str) -> None:
        self._max_length = max_model_len
        self._block_size = block_size
        width = -(-max_model_len // block_size)
        self._numbers = torch.zeros(3 * max_rows, dtype=torch.int64, device=device)
        self._lengths = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self._tables = torch.zeros(max_rows, width, dtype=torch.int32, device=device)

    def fill(
        self, sequences: Sequence[ScheduledSequence], size: int, sampled: torch.Tensor | None = None
    ) -> None:
        """Copy the inputs of a step to the buffers; the remaining rows up to `size` become padding.

        sequences: with one token each, at most `size` of them. sampled: int64 [rows], sampled tokens that
        replace placeholders among the tokens.
        """
        numbers = np.zeros((3, size), dtype=np.int64)
        numbers[2] = NOWHERE
        lengths = np.zeros(size, dtype=np.int32)
        for row, sequence in enumerate(sequences):
            block, offset = divmod(sequence.start, self._block_size)
            slot = sequence.block_table[block] * self._block_size + offset
            numbers[:, row] = sequence.token_ids[0], sequence.start, slot
            lengths[row] = sequence.end
        used = [s.block_table[: -(-s.end // self._block_size)] for s in sequences]
        tables = pad_tables(used).astype(np.int32)
        device = self._numbers.device
        self._numbers[: 3 * size].copy_(send(torch.from_numpy(numbers).view(-1), device))
        self._lengths[:size].copy_(send(torch.from_numpy(lengths), device))
        self._tables[: len(tables), : tables.shape[1]].copy_(send(torch.from_numpy(tables), device))
        if sampled is not None:
            fill_pending(self._numbers[:size], sampled)

    def compute(self, forward: Forward, size: int) -> torch.Tensor:
        """Run the forward pass of the buffered step."""
        token_ids, positions, slots = self._numbers[: 3 * size].view(3, size)
        batch = PagedBatch(self._tables[:size], None, self._lengths[:size], 1, self._max_length)
        return forward(token_ids, positions, PagedAttention(batch, slots))


class DecodeGraphs:
    """Recorded forward passes of decode steps, by batch size."""

    def __init__(
        self, forward: Forward, buffers: DecodeBuffers, max_rows: int, recorder: Recorder
    ) -> None:
        """forward: maps token ids, positions and attention to hidden states. max_rows: size of the
        buffers."""
        self._forward = forward
        self._buffers = buffers
        self._max_rows = max_rows
        self._record = recorder
        self._recorded: dict[int, Compute] = {}

    def run(
        self, sequences: Sequence[ScheduledSequence], sampled: torch.Tensor | None = None
    ) -> torch.Tensor | None:
        """Compute a decode step. Returns hidden states [sequences, hidden_size], valid until the next.

        Returns None for a step with chunks or adapters, or with more than max_rows sequences. sampled:
        sampled tokens that replace placeholders.
        """
        size = padded_size(len(sequences))
        if size is None or size > self._max_rows or not all(map(_is_plain, sequences)):
            return None
        self._buffers.fill(sequences, size, sampled)
        if size not in self._recorded:
            self._recorded[size] = self._record(lambda: self._buffers.compute(self._forward, size))
        return self._recorded[size]()[: len(sequences)]


def _is_plain(sequence: ScheduledSequence) -> bool:
    """Whether a sequence has a single token and no adapter, so that its launches are always the same."""
    return sequence.num_tokens == 1 and not sequence.adapter
