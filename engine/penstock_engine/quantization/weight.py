"""A matrix that is held in fewer bits than it computes in.

Triton's kernels read them so wherever they run. Elsewhere, torch has a fast path for some on the
CPU; where there is none, some rows at a time are brought back into the number type of the
model, in a buffer that the caches of a CPU hold, and multiplied: a batch of one reads its weights
once, in their few bits, and a long prompt pays little beside its own product.
"""

from abc import ABC, abstractmethod

import torch
from torch import nn

from penstock_engine.kernels.operations import operations

# Of the buffer; measured on a CPU with 1 MiB of L2 cache. Smaller ones cost more calls than they
# save misses.
BLOCK_NUMBERS = 1 << 20

# The kernels that unpack as they multiply do so once for each row, so beyond some rows unpacking
# first is faster; see benchmarks/weight_formats.py. A rule and not a timing at the start: the
# clock of a busy machine must not decide what is computed.
MAX_KERNEL_ROWS = 32


class QuantizedWeight(nn.Module, ABC):
    """x -> x @ weight.T for a weight [num_outputs, num_inputs]."""

    def __init__(
        self, shape: torch.Size, order: torch.Tensor | None, row_multiple: int = 1
    ) -> None:
        """order: as in QuantizedMatrix. row_multiple: rows that are unpacked together."""
        super().__init__()
        self.num_outputs, self.num_inputs = shape
        self.order: torch.Tensor | None
        self.register_buffer("order", order)
        num_rows = max(1, BLOCK_NUMBERS // self.num_inputs // row_multiple) * row_multiple
        self._num_block_rows = min(num_rows, -(-self.num_outputs // row_multiple) * row_multiple)

    @abstractmethod
    def _block(self, x: torch.Tensor, first: int, last: int, buffer: torch.Tensor) -> torch.Tensor:
        """x @ weight[first:last].T; buffer: (last - first) * num_inputs numbers to work in."""

    @abstractmethod
    def _triton(self, x: torch.Tensor) -> torch.Tensor | None:
        """x @ weight.T by Triton's kernel; None where its groups are not for it."""

    def _kernel(self, x: torch.Tensor) -> torch.Tensor | None:
        """x @ weight.T where torch has a fast path for x."""
        return None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., num_inputs], of the model's number type. Returns [..., num_outputs]."""
        rows = x.reshape(-1, self.num_inputs)
        if self.order is not None:
            rows = rows.index_select(1, self.order)
        has_triton = operations(x.device).has_kernels
        product = self._triton(rows) if has_triton else self._kernel(rows)
        if product is None:
            product = self._in_blocks(rows)
        return product.reshape(*x.shape[:-1], self.num_outputs)

    def _in_blocks(self, x: torch.Tensor) -> torch.Tensor:
        product = x.new_empty(len(x), self.num_outputs)
        buffer = x.new_empty(self._num_block_rows * self.num_inputs)
        for first in range(0, self.num_outputs, self._num_block_rows):
            last = min(self.num_outputs, first + self._num_block_rows)
            product[:, first:last] = self._block(x, first, last, buffer)
        return product

    def held_bytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers())


def on_cpu_in_bfloat16(x: torch.Tensor) -> bool:
    """Where torch's kernels that unpack as they multiply are fast; elsewhere they are not even
    vectorised. x: [rows, inputs]."""
    return x.device.type == "cpu" and x.dtype == torch.bfloat16 and len(x) <= MAX_KERNEL_ROWS
