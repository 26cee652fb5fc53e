"""Round-to-nearest quantization of 16-bit or 32-bit weights to int8 or int4 while they are loaded.

Each number is rounded to the nearest multiple of its scale, half to even. int8 has one scale for
each row, so that its largest magnitude becomes 127. int4 has a scale and a zero point for each group
of inputs, with 16 steps from the group's minimum to its maximum, one of them at 0.
"""

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.scheme import Headers, MatrixInfo, Tensors

if TYPE_CHECKING:
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

Quantization = Literal["int8", "int4"]

GROUP_SIZE = 128
SMALLEST_GROUP = 16
# Lower bound on scales, which avoids division by zero for zeros, and which float16 can represent.
SMALLEST_SCALE = 1e-7


@dataclass(frozen=True, slots=True)
class RoundToNearest:
    """Round-to-nearest quantization scheme.

    dtype: of the scales, by torch's name; it is the model's. products: last parts of the names of the
    modules to quantize.
    """

    kind: Quantization
    dtype: str
    products: Container[str]

    def describe(self, headers: Headers) -> dict[str, MatrixInfo]:
        return {
            module: MatrixInfo(
                self.kind, *found.shape, self._num_groups(found.shape[1]), self.has_zeros
            )
            for name, found in headers.items()
            if (module := self._module(name)) and len(found.shape) == 2
        }

    def read(self, tensors: Tensors, module: str) -> "QuantizedMatrix | None":
        name = f"{module}.weight"
        if not self._module(name) or name not in tensors:
            return None
        return self.quantize(tensors.get(name))

    def quantize(self, weight: "torch.Tensor") -> "QuantizedMatrix":
        """Quantize a weight: [outputs, inputs]."""
        import torch

        dtype = getattr(torch, self.dtype)
        if self.kind == "int8":
            return round_to_int8(weight, dtype)
        return round_to_int4(weight, group_size(weight.shape[1]), dtype)

    @property
    def has_zeros(self) -> bool:
        return self.kind == "int4"

    def _num_groups(self, num_inputs: int) -> int:
        return 1 if self.kind == "int8" else num_inputs // group_size(num_inputs)

    def _module(self, name: str) -> str:
        """Module of a tensor if it is to be quantized, otherwise empty."""
        module, _, leaf = name.rpartition(".")
        return module if leaf == "weight" and module.rpartition(".")[2] in self.products else ""


def group_size(num_inputs: int) -> int:
    """Group size for int4: the largest power of two up to 128 that divides num_inputs.

    Raises ModelError if it is below SMALLEST_GROUP.
    """
    size = math.gcd(num_inputs, GROUP_SIZE)
    if size < SMALLEST_GROUP:
        raise ModelError(
            "UnevenWidth",
            f"int4 needs rows of a multiple of {SMALLEST_GROUP} numbers, but this model has some "
            f"of {num_inputs}: set --quantization to int8",
        )
    return size


def round_to_int8(weight: "torch.Tensor", dtype: "torch.dtype") -> "QuantizedMatrix":
    """Quantize to int8 with one scale for each row. weight: [outputs, inputs]. dtype: of the scales."""
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

    numbers = weight.float()
    scales = (numbers.abs().amax(1, keepdim=True) / 127).clamp_min(SMALLEST_SCALE).to(dtype)
    codes = (numbers / scales.float()).round_().clamp_(-127, 127).to(torch.int8)
    return QuantizedMatrix(codes, scales, 8, weight.shape[1])


def round_to_int4(weight: "torch.Tensor", size: int, dtype: "torch.dtype") -> "QuantizedMatrix":
    """Quantize to int4 with a scale and a zero point for each group.

    weight: [outputs, inputs]; inputs must be a multiple of size, the group size. dtype: of the scales.
    """
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

    groups = weight.float().reshape(len(weight), -1, size)
    least, largest = groups.amin(2).clamp_max(0), groups.amax(2).clamp_min(0)
    scales = ((largest - least) / 15).clamp_min(SMALLEST_SCALE).to(dtype)
    zeros = (-8 - least / scales.float()).round_()
    codes = (groups / scales.float()[..., None]).round_().add_(zeros[..., None]).clamp_(-8, 7)
    codes = codes.to(torch.int8).flatten(1)
    return QuantizedMatrix(codes, scales, 4, size, zeros.to(torch.int16))
