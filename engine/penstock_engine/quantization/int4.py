"""4-bit quantized weights, with a scale and an offset for each group of inputs.

    weight[o, i] = (code[o, i] - 8) * scale[o, g] + offset[o, g]        code: 0 to 15

This is the formula of torch's CPU kernel, and its packed layout is used if it is known, so that one
copy of the weights serves the kernel and dequantization: rows are packed in blocks. For each input, a
byte holds the code of a row of the block's first half in its low 4 bits, and that of the row in the
same place of the second half in its high 4 bits.
"""

from functools import cache

import torch
import torch.nn.functional as F

from penstock_engine.kernels.int4_linear import int4_linear
from penstock_engine.kernels.int8_linear import GROUP_MULTIPLE
from penstock_engine.quantization.matrix import QuantizedMatrix
from penstock_engine.quantization.scheme import INT4_ROWS
from penstock_engine.quantization.weight import QuantizedWeight, on_cpu_in_bfloat16

KERNEL_GROUP_SIZES = (32, 64, 128, 256)
# Block sizes of torch's kernel for CPUs with vectors of 512 and of 256 bits.
BLOCK_ROWS = (64, 32)


def pack(codes: torch.Tensor, block_rows: int) -> torch.Tensor:
    """Pack codes, uint8 [outputs, inputs] from 0 to 15, into uint8 [blocks, inputs, block_rows / 2]."""
    blocks = codes.view(-1, 2, block_rows // 2, codes.shape[1])
    return (blocks[:, 0] | blocks[:, 1] << 4).transpose(1, 2).contiguous()


@cache
def kernel_block_rows() -> int | None:
    """Rows in a block of the layout of torch's kernel, which depends on the CPU. None: unknown."""
    codes = torch.randint(
        0, 16, (2 * BLOCK_ROWS[0], 32), generator=torch.Generator("cpu").manual_seed(0)
    )
    try:
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 2)
    except (AttributeError, RuntimeError):
        return None
    for block_rows in BLOCK_ROWS:
        if torch.equal(pack(codes.to(torch.uint8), block_rows).flatten(), packed.flatten()):
            return block_rows
    return None


class Int4Weight(QuantizedWeight):
    """4-bit weight.

    packed: uint8 [blocks, inputs, block_rows / 2]; rows are padded to whole blocks.
    scales_and_offsets: [groups, padded rows, 2] of the model's dtype.
    """

    packed: torch.Tensor
    scales_and_offsets: torch.Tensor

    def __init__(self, matrix: QuantizedMatrix, dtype: torch.dtype) -> None:
        """matrix: its groups must have equal sizes. dtype: of the model."""
        self._num_padded = -(-matrix.shape[0] // INT4_ROWS) * INT4_ROWS
        super().__init__(matrix.shape, matrix.order, INT4_ROWS)
        known = kernel_block_rows() if matrix.codes.device.type == "cpu" else None
        self._block_rows = known or BLOCK_ROWS[0]
        self._group_size = matrix.group_size
        self._has_offsets = matrix.zeros is not None
        self._has_kernel = known is not None and matrix.group_size in KERNEL_GROUP_SIZES
        padding = (0, 0, 0, self._num_padded - self.num_outputs)
        codes = F.pad((matrix.codes + 8).to(torch.uint8), padding)
        scales = F.pad(matrix.scales.float(), padding)
        offsets = torch.zeros_like(scales)
        if matrix.zeros is not None:
            offsets = -F.pad(matrix.zeros.float(), padding) * scales
        both = torch.stack((scales.t(), offsets.t()), -1)
        self.register_buffer("packed", pack(codes, self._block_rows))
        self.register_buffer("scales_and_offsets", both.to(dtype).contiguous())

    def _triton(self, x: torch.Tensor) -> torch.Tensor | None:
        if self._group_size % GROUP_MULTIPLE:
            return None
        return int4_linear(x, self.packed, self.scales_and_offsets, self.num_outputs)

    def _kernel(self, x: torch.Tensor) -> torch.Tensor | None:
        if not self._has_kernel or not on_cpu_in_bfloat16(x):
            return None
        product: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x,
            self.packed.view(self._num_padded, self.num_inputs // 2),
            self._group_size,
            self.scales_and_offsets,
        )
        return product[:, : self.num_outputs]

    def _block(self, x: torch.Tensor, first: int, last: int, buffer: torch.Tensor) -> torch.Tensor:
        size = self._block_rows
        blocks = slice(first // size, -(-last // size))
        packed = self.packed[blocks]
        numbers = buffer[: 2 * packed.numel()].view(len(packed), self.num_inputs, size)
        numbers[..., : size // 2] = packed & 15
        numbers[..., size // 2 :] = packed >> 4
        numbers.sub_(8)
        # [blocks, groups, 1, rows of a block]
        num_groups = len(self.scales_and_offsets)
        scales, offsets = (
            part.view(num_groups, -1, size)[:, blocks].transpose(0, 1)[:, :, None].contiguous()
            for part in self.scales_and_offsets.unbind(-1)
        )
        grouped = numbers.view(len(packed), -1, self._group_size, size).mul_(scales)
        if self._has_offsets:
            grouped.add_(offsets)
        product = torch.matmul(x, numbers)
        return product.transpose(0, 1).flatten(1)[:, : last - first]
