"""Interface of quantization schemes, and tensor headers of checkpoints. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

Kind = Literal["int4", "int8", "fp8"]

# Int4Weight pads its rows to a multiple of this.
INT4_ROWS = 64


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a tensor in a safetensors file. dtype: by safetensors' name, such as BF16."""

    dtype: str
    shape: tuple[int, ...]


Headers = Mapping[str, Header]


class Tensors(Protocol):
    """The tensors of a checkpoint, by name."""

    def __contains__(self, name: object) -> bool: ...

    def get(self, name: str) -> "torch.Tensor":
        """Read a tensor. Raises ModelError if there is none of this name."""
        ...


class Scheme(Protocol):
    """Quantization scheme: the format of a quantized checkpoint, or rounding while loading."""

    def describe(self, headers: Headers) -> dict[str, "MatrixInfo"]:
        """Describe the matrices that this scheme reads, by module. Raises ModelError."""
        ...

    def read(self, tensors: Tensors, module: str) -> "QuantizedMatrix | None":
        """Read a module's matrix. Returns None if it is not quantized. Raises ModelError."""
        ...


@dataclass(frozen=True, slots=True)
class MatrixInfo:
    """Shape and quantization of a matrix, known without reading it.

    num_groups: scales of each row. has_zeros: each scale has a zero point. has_order: the inputs of a
    group are not consecutive.
    """

    kind: Kind
    num_outputs: int
    num_inputs: int
    num_groups: int
    has_zeros: bool = False
    has_order: bool = False

    def memory_bytes(self, item_bytes: int) -> int:
        """Memory of the loaded weight, in bytes. item_bytes: size of the model's dtype."""
        order_bytes = 8 * self.num_inputs if self.has_order else 0
        if self.kind == "int4":
            num_rows = -(-self.num_outputs // INT4_ROWS) * INT4_ROWS
            scales_bytes = 2 * item_bytes * num_rows * self.num_groups
            return num_rows * self.num_inputs // 2 + scales_bytes + order_bytes
        zero_bytes = 2 if self.has_zeros else 0
        scales_bytes = (item_bytes + zero_bytes) * self.num_outputs * self.num_groups
        return self.num_outputs * self.num_inputs + scales_bytes + order_bytes
