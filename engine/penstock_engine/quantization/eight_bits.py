"""8-bit quantized weights: int8 and float8."""

import torch

from penstock_engine.kernels.int8_linear import GROUP_MULTIPLE, int8_linear
from penstock_engine.quantization.float8 import FLOAT16_FACTOR, float8_to_float16
from penstock_engine.quantization.matrix import QuantizedMatrix
from penstock_engine.quantization.weight import QuantizedWeight, on_cpu_in_bfloat16

# torch's int8 kernel needs a multiple of this number of inputs.
KERNEL_INPUTS = 32


class EightBitWeight(QuantizedWeight):
    """Base of int8 and float8 weights: weight = (codes - zeros) * scales * factor.

    codes: int8 [outputs, inputs], for float8 its bits. scales: [outputs, groups] of the model's dtype.
    zeros: int16 [outputs, groups]; None: 0.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    dtype = torch.int8
    factor = 1.0

    def __init__(self, matrix: QuantizedMatrix, codes: torch.Tensor, scales: torch.Tensor) -> None:
        super().__init__(matrix.shape, matrix.order)
        self._group_size = matrix.group_size
        self.register_buffer("codes", codes.contiguous())
        self.register_buffer("scales", scales.contiguous())
        zeros = matrix.zeros
        self.register_buffer("zeros", None if zeros is None else zeros.contiguous())

    def _fill(self, buffer: torch.Tensor, rows: slice) -> None:
        buffer.copy_(self.codes[rows])

    def _triton(self, x: torch.Tensor) -> torch.Tensor | None:
        if self.scales.shape[1] > 1 and self._group_size % GROUP_MULTIPLE:
            return None
        return int8_linear(
            x, self.codes.view(self.dtype), self.scales, self._group_size,
            zeros=self.zeros, factor=self.factor,
        )  # fmt: skip

    def _block(self, x: torch.Tensor, first: int, last: int, buffer: torch.Tensor) -> torch.Tensor:
        rows = slice(first, last)
        numbers = buffer[: (last - first) * self.num_inputs].view(-1, self.num_inputs)
        self._fill(numbers, rows)
        if self.zeros is not None:
            numbers.sub_(self._widened(self.zeros[rows]).to(x.dtype))
        # In float16, unscaled codes could overflow at inputs of 80, so the weights are scaled first.
        if self.scales.shape[1] == 1 and x.dtype != torch.float16:
            return (x @ numbers.t()).mul_(self.scales[rows, 0])
        if self.num_inputs % self._group_size:
            numbers.mul_(self._widened(self.scales[rows]))
        else:
            grouped = numbers.view(last - first, -1, self._group_size)
            grouped.mul_(self.scales[rows, :, None])
        return x @ numbers.t()

    def _widened(self, by_group: torch.Tensor) -> torch.Tensor:
        return by_group.repeat_interleave(self._group_size, 1)[:, : self.num_inputs]


class Int8Weight(EightBitWeight):
    """int8 weight with any groups. It is fastest with one scale for each row and no zero points."""

    def __init__(self, matrix: QuantizedMatrix, dtype: torch.dtype) -> None:
        super().__init__(matrix, matrix.codes, matrix.scales.to(dtype))
        self._has_kernel = (
            matrix.scales.shape[1] == 1
            and matrix.zeros is None
            and self.num_inputs % KERNEL_INPUTS == 0
        )

    def _kernel(self, x: torch.Tensor) -> torch.Tensor | None:
        if not self._has_kernel or not on_cpu_in_bfloat16(x):
            return None
        return torch._weight_int8pack_mm(x, self.codes, self.scales[:, 0])


class Float8Weight(EightBitWeight):
    """float8_e4m3fn weight, stored as its bits. Scales are multiplied by FLOAT16_FACTOR."""

    dtype = torch.float8_e4m3fn
    factor = 1 / FLOAT16_FACTOR

    def __init__(self, matrix: QuantizedMatrix, dtype: torch.dtype) -> None:
        scales = matrix.scales.float() * FLOAT16_FACTOR
        super().__init__(matrix, matrix.codes.view(torch.int8), scales.to(dtype))

    def _fill(self, buffer: torch.Tensor, rows: slice) -> None:
        buffer.copy_(float8_to_float16(self.codes[rows]))
