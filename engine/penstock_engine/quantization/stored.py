"""What a checkpoint says of its matrices without being read. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from penstock_engine.core.errors import ModelError

if TYPE_CHECKING:
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

Kind = Literal["int4", "int8", "fp8"]

# Int4Weight holds its rows in groups of so many.
INT4_ROWS = 64


@dataclass(frozen=True, slots=True)
class Header:
    """One tensor of a safetensors file; dtype by safetensors' name for it."""

    dtype: str
    shape: tuple[int, ...]


Headers = Mapping[str, Header]


class Tensors(Protocol):
    """A checkpoint that can be read."""

    def __contains__(self, name: object) -> bool: ...

    def get(self, name: str) -> "torch.Tensor":
        """Raises ModelError when there is none of this name."""
        ...


class Scheme(Protocol):
    """How matrices come to be held in fewer bits: the format of a checkpoint, or rounding."""

    def stored(self, headers: Headers) -> dict[str, "Stored"]:
        """The matrices this scheme reads, by module. Raises ModelError."""
        ...

    def read(self, tensors: Tensors, module: str) -> "QuantizedMatrix | None":
        """None: the module's matrix is to be held as it is. Raises ModelError."""
        ...


@dataclass(frozen=True, slots=True)
class Stored:
    """A matrix [num_outputs, num_inputs] of which each row has num_groups scales.

    has_zeros: each scale has a zero point. has_order: groups are not of neighbouring inputs.
    """

    kind: Kind
    num_outputs: int
    num_inputs: int
    num_groups: int
    has_zeros: bool = False
    has_order: bool = False

    def held_bytes(self, item_bytes: int) -> int:
        """Of the weight that load_weights makes of it. item_bytes: of the model's number type."""
        order_bytes = 8 * self.num_inputs if self.has_order else 0
        if self.kind == "int4":
            num_rows = -(-self.num_outputs // INT4_ROWS) * INT4_ROWS
            scales_bytes = 2 * item_bytes * num_rows * self.num_groups
            return num_rows * self.num_inputs // 2 + scales_bytes + order_bytes
        zero_bytes = 2 if self.has_zeros else 0
        scales_bytes = (item_bytes + zero_bytes) * self.num_outputs * self.num_groups
        return self.num_outputs * self.num_inputs + scales_bytes + order_bytes


def unsupported(message: str) -> ModelError:
    return ModelError("UnsupportedQuantization", message)
