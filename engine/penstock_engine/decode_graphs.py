"""Steps of single tokens as replays of CUDA graphs, in which a small model spends most of its time
on launches.

A step is padded to the next of a few sizes. Padding is a row of token 0 that writes nowhere, sees
nothing and is read by nobody. A size is recorded when a step first needs it: most never are, and
each would cost time at the start. The step that needs it computes the same keys and values twice,
which changes nothing.

The capture itself (kernels/cuda_graph.py) runs only on CUDA; sizes, buffers and padding are the same
with any recorder, and are tested with one that runs everything again.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from penstock_engine.core.step import ScheduledSequence
from penstock_engine.graph_sizes import padded_size
from penstock_engine.kernels.cuda_graph import Compute, Recorder
from penstock_engine.kernels.paged_batch import PagedBatch
from penstock_engine.kernels.transfer import send
from penstock_engine.layers.attention import StepAttention, pad_tables
from penstock_engine.layers.paged_attention import PagedAttention
from penstock_engine.layers.pending_tokens import fill_pending

NOWHERE = -1

Forward = Callable[[torch.Tensor, torch.Tensor, StepAttention], torch.Tensor]


class DecodeBuffers:
    """The inputs of a step, at fixed addresses for each size.

    numbers: int64 [3 * size]: token ids, positions and slots. lengths: int32 [size]. tables: int32
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
        self, sequences: Sequence[ScheduledSequence], size: int, drawn: torch.Tensor | None = None
    ) -> None:
        """sequences: of one token each, at most size. Rows behind them become padding.

        drawn: what awaited ones among the tokens are.
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
        if drawn is not None:
            fill_pending(self._numbers[:size], drawn)

    def compute(self, forward: Forward, size: int) -> torch.Tensor:
        token_ids, positions, slots = self._numbers[: 3 * size].view(3, size)
        batch = PagedBatch(self._tables[:size], None, self._lengths[:size], 1, self._max_length)
        return forward(token_ids, positions, PagedAttention(batch, slots))


class DecodeGraphs:
    """One recorded forward pass for each size that was needed."""

    def __init__(
        self, forward: Forward, buffers: DecodeBuffers, max_rows: int, recorder: Recorder
    ) -> None:
        """forward: token ids, positions, attention -> hidden states. max_rows: of buffers."""
        self._forward = forward
        self._buffers = buffers
        self._max_rows = max_rows
        self._record = recorder
        self._recorded: dict[int, Compute] = {}

    def run(
        self, sequences: Sequence[ScheduledSequence], drawn: torch.Tensor | None = None
    ) -> torch.Tensor | None:
        """Hidden states [sequences, hidden_size], which the next run overwrites. drawn: as of fill.

        None where the step is not of single tokens of the model itself, or of too many.
        """
        size = padded_size(len(sequences))
        if size is None or size > self._max_rows or not all(map(_is_plain, sequences)):
            return None
        self._buffers.fill(sequences, size, drawn)
        if size not in self._recorded:
            self._recorded[size] = self._record(lambda: self._buffers.compute(self._forward, size))
        return self._recorded[size]()[: len(sequences)]


def _is_plain(sequence: ScheduledSequence) -> bool:
    """Where an adapter's tokens are depends on the step, and whether there are any on the launches."""
    return sequence.num_tokens == 1 and not sequence.adapter
