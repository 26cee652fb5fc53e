"""Base class of weights that are stored in fewer bits than they are computed in.

On devices with Triton, a kernel reads the quantized weights directly. On the CPU, torch has kernels
for some cases. Otherwise, blocks of rows are dequantized into a buffer that fits the CPU's caches,
and multiplied. So a batch of one reads its weights once, in their few bits, and for a long prompt
dequantization costs little compared with the product.
"""

from abc import ABC, abstractmethod

import torch
from torch import nn

from penstock_engine.kernels.operations import operations

# Size of the buffer, measured on a CPU with 1 MiB of L2 cache. With a smaller one, additional calls cost
# more than fewer cache misses save.
BLOCK_NUMBERS = 1 << 20

# Rows of x up to which torch's kernels are used. They dequantize once for each row, so with more rows it
# is faster to dequantize first; weight_formats.py, a benchmark at e441d779, compares both. The limit is
# fixed rather than measured at start-up, so that the load of the machine does not affect results.
MAX_KERNEL_ROWS = 32


class QuantizedWeight(nn.Module, ABC):
    """Quantized weight [num_outputs, num_inputs] of a linear layer; computes x @ weight.T."""

    def __init__(
        self, shape: torch.Size, order: torch.Tensor | None, row_multiple: int = 1
    ) -> None:
        """order: permutation of the inputs, as in QuantizedMatrix. row_multiple: number of rows that
        are dequantized together."""
        super().__init__()
        self.num_outputs, self.num_inputs = shape
        self.order: torch.Tensor | None
        self.register_buffer("order", order)
        num_rows = max(1, BLOCK_NUMBERS // self.num_inputs // row_multiple) * row_multiple
        self._num_block_rows = min(num_rows, -(-self.num_outputs // row_multiple) * row_multiple)

    @abstractmethod
    def _block(self, x: torch.Tensor, first: int, last: int, buffer: torch.Tensor) -> torch.Tensor:
        """Dequantize and multiply: x @ weight[first:last].T.

        buffer: temporary memory of at least (last - first) * num_inputs elements.
        """

    @abstractmethod
    def _triton(self, x: torch.Tensor) -> torch.Tensor | None:
        """Compute x @ weight.T with a Triton kernel; None if it does not support the group size."""

    def _kernel(self, x: torch.Tensor) -> torch.Tensor | None:
        """Compute x @ weight.T with torch's kernel; None if there is none for x."""
        return None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute x @ weight.T. x: [..., num_inputs] of the model's dtype. [..., num_outputs]."""
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

    def memory_bytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers())


def on_cpu_in_bfloat16(x: torch.Tensor) -> bool:
    """Whether torch's quantized kernels are fast for x: [rows, inputs].

    For other dtypes and devices they are not vectorized.
    """
    return x.device.type == "cpu" and x.dtype == torch.bfloat16 and len(x) <= MAX_KERNEL_ROWS
