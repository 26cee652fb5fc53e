"""Reads AWQ checkpoints of AutoAWQ in `gemm` packing.

    qweight  int32  [inputs, outputs / 8]   4-bit numbers of 8 outputs, in the order of PLACES
    qzeros   int32  [groups, outputs / 8]   packed in the same way
    scales   f16    [groups, outputs]

    weight[o, i] = (qweight[i, o] - qzeros[g, o]) * scales[g, o]        g = i // group_size

Each matrix becomes an Int4Weight.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock_engine.quantization.errors import unsupported
from penstock_engine.quantization.formats.fields import (
    FLOATS,
    check_group_size,
    check_shape,
    configured_group_size,
    modules_with,
    read_count,
    read_header,
)
from penstock_engine.quantization.scheme import Headers, MatrixInfo, Tensors

if TYPE_CHECKING:
    from penstock_engine.quantization.matrix import QuantizedMatrix

# Position of each of 8 outputs within a 32-bit word.
PLACES = (0, 4, 1, 5, 2, 6, 3, 7)


@dataclass(frozen=True, slots=True)
class Awq:
    """AWQ checkpoints in gemm packing. group_size: inputs that share a scale; None: by the tensors'
    shapes."""

    group_size: int | None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "Awq":
        """Parse quantization_config of config.json. Raises ModelError."""
        bits = read_count(raw, "bits", read_count(raw, "w_bit", 4))
        if bits != 4:
            raise unsupported(f"AWQ of {bits} bits is not supported: take a checkpoint of 4 bits")
        packing = str(raw.get("version") or raw.get("format") or "gemm").lower()
        if packing != "gemm":
            raise unsupported(
                f"AWQ in {packing} packing is not supported: take a checkpoint in gemm packing"
            )
        return cls(configured_group_size(raw))

    def describe(self, headers: Headers) -> dict[str, MatrixInfo]:
        found = {}
        for module in modules_with(headers, "qweight"):
            num_inputs, num_words = read_header(headers, f"{module}.qweight", ("I32",), 2).shape
            num_groups, _ = read_header(headers, f"{module}.scales", FLOATS, 2).shape
            read_header(headers, f"{module}.qzeros", ("I32",), 2)
            check_shape(headers, f"{module}.scales", (num_groups, 8 * num_words))
            check_shape(headers, f"{module}.qzeros", (num_groups, num_words))
            check_group_size(num_inputs, num_groups, self.group_size)
            found[module] = MatrixInfo(
                "int4", 8 * num_words, num_inputs, num_groups, has_zeros=True
            )
        return found

    def read(self, tensors: Tensors, module: str) -> "QuantizedMatrix | None":
        if f"{module}.qweight" not in tensors:
            return None
        from penstock_engine.quantization.matrix import QuantizedMatrix
        from penstock_engine.quantization.unpack import unpack

        scales = tensors.get(f"{module}.scales")
        codes, zeros = (
            unpack(
                tensors.get(f"{module}.{leaf}"), 4, dim=1, length=scales.shape[1], places=PLACES
            ).sub_(8)
            for leaf in ("qweight", "qzeros")
        )
        group_size = check_group_size(len(codes), len(scales), self.group_size)
        return QuantizedMatrix(codes.char().t(), scales.t(), 4, group_size, zeros.t())
