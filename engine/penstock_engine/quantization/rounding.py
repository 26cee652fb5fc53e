"""int8 and int4 made at load, of weights that a checkpoint has in 16 or 32 bits.

Each number is rounded to the nearest multiple of its scale, half to even. int8 has one scale for
each row, so that its largest magnitude becomes 127; int4 has one for each group of inputs, which
lays 16 steps from the group's least number to its largest, one of them at 0.
"""

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.stored import Headers, Stored, Tensors

if TYPE_CHECKING:
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

Quantization = Literal["int8", "int4"]

GROUP_SIZE = 128
SMALLEST_GROUP = 16
# Of a row or group of zeros, which stays one; float16 can hold it.
SMALLEST_SCALE = 1e-7


@dataclass(frozen=True, slots=True)
class Rounding:
    """products: the last parts of the names of the modules that are rounded.

    dtype: of the scales, by torch's name; it is the model's.
    """

    kind: Quantization
    dtype: str
    products: Container[str]

    def stored(self, headers: Headers) -> dict[str, Stored]:
        return {
            module: Stored(
                self.kind, *found.shape, self._num_groups(found.shape[1]), self.has_zeros
            )
            for name, found in headers.items()
            if (module := self._module(name)) and len(found.shape) == 2
        }

    def read(self, tensors: Tensors, module: str) -> "QuantizedMatrix | None":
        name = f"{module}.weight"
        if not self._module(name) or name not in tensors:
            return None
        return self.rounded(tensors.get(name))

    def rounded(self, weight: "torch.Tensor") -> "QuantizedMatrix":
        """weight: [outputs, inputs]."""
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
        """Of the tensor of a product, else empty."""
        module, _, leaf = name.rpartition(".")
        return module if leaf == "weight" and module.rpartition(".")[2] in self.products else ""


def group_size(num_inputs: int) -> int:
    """128, or the largest power of two below it that divides num_inputs. Raises ModelError."""
    size = math.gcd(num_inputs, GROUP_SIZE)
    if size < SMALLEST_GROUP:
        raise ModelError(
            "UnevenWidth",
            f"int4 needs rows of a multiple of {SMALLEST_GROUP} numbers, but this model has some "
            f"of {num_inputs}: set --quantization to int8",
        )
    return size


def round_to_int8(weight: "torch.Tensor", dtype: "torch.dtype") -> "QuantizedMatrix":
    """weight: [outputs, inputs]. dtype: of the scales."""
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

    numbers = weight.float()
    scales = (numbers.abs().amax(1, keepdim=True) / 127).clamp_min(SMALLEST_SCALE).to(dtype)
    codes = (numbers / scales.float()).round_().clamp_(-127, 127).to(torch.int8)
    return QuantizedMatrix(codes, scales, 8, weight.shape[1])


def round_to_int4(weight: "torch.Tensor", size: int, dtype: "torch.dtype") -> "QuantizedMatrix":
    """weight: [outputs, inputs], inputs a multiple of size, the group's. dtype: of the scales."""
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

    groups = weight.float().reshape(len(weight), -1, size)
    least, largest = groups.amin(2).clamp_max(0), groups.amax(2).clamp_min(0)
    scales = ((largest - least) / 15).clamp_min(SMALLEST_SCALE).to(dtype)
    zeros = (-8 - least / scales.float()).round_()
    codes = (groups / scales.float()[..., None]).round_().add_(zeros[..., None]).clamp_(-8, 7)
    codes = codes.to(torch.int8).flatten(1)
    return QuantizedMatrix(codes, scales, 4, size, zeros.to(torch.int16))
