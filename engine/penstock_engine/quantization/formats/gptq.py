"""Reads GPTQ checkpoints of AutoGPTQ and GPTQModel with 4 or 8 bits.

    qweight  int32  [inputs * bits / 32, outputs]   32 / bits inputs in a word, lowest bits first
    qzeros   int32  [groups, outputs * bits / 32]   outputs packed in the same way
    scales   f16    [groups, outputs]
    g_idx    int32  [inputs]                        the group of each input; absent: i // group_size

    weight[o, i] = (qweight[i, o] - zero[g, o]) * scales[g, o]        g = g_idx[i]

zero is qzeros in the second version of the format (`gptq_v2`). The first version subtracts 1 from
each number of a word, as one 32-bit subtraction: a zero point 0 borrows from the number above it.
GPTQModel packs it this way. AutoGPTQ lost the numbers above a 0; they cannot be restored.

With desc_act, a group has inputs of similar importance instead of consecutive ones. The inputs are
then sorted by group: those of the weights while loading, and those of x in each product.

4-bit matrices become an Int4Weight, 8-bit ones an Int8Weight. If they are symmetric, all zero points
are in the middle of the range, and are dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.errors import unsupported
from penstock_engine.quantization.formats.fields import (
    FLOATS,
    INDEX,
    check_group_size,
    check_shape,
    configured_group_size,
    modules_with,
    read_count,
    read_header,
)
from penstock_engine.quantization.scheme import Headers, MatrixInfo, Tensors

if TYPE_CHECKING:
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

PACKINGS = ("gptq", "gptq_v2")
# 1 in each number of a word, by bits.
ONES = {4: 0x11111111, 8: 0x01010101}


@dataclass(frozen=True, slots=True)
class Gptq:
    """GPTQ checkpoints. group_size: inputs that share a scale; None: by the tensors' shapes."""

    bits: int
    is_first_version: bool
    is_symmetric: bool
    has_order: bool
    group_size: int | None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "Gptq":
        """Parse quantization_config of config.json. Raises ModelError."""
        bits = read_count(raw, "bits", 4)
        if bits not in (4, 8):
            raise unsupported(
                f"GPTQ of {bits} bits is not supported: take a checkpoint of 4 or 8 bits"
            )
        packing = str(raw.get("checkpoint_format") or raw.get("format") or "gptq").lower()
        if packing not in PACKINGS:
            raise unsupported(
                f"GPTQ in {packing} packing is not supported: take a checkpoint in the packing "
                f"{' or '.join(PACKINGS)}"
            )
        if any(not str(rule).startswith("-:") for rule in raw.get("dynamic") or ()):
            raise unsupported(
                "GPTQ with settings of its own for some modules (dynamic) is not supported: take a "
                "checkpoint that is quantized alike throughout"
            )
        return cls(
            bits=bits,
            is_first_version=packing == "gptq",
            is_symmetric=bool(raw.get("sym", True)),
            has_order=bool(raw.get("desc_act", False)),
            group_size=configured_group_size(raw),
        )

    def describe(self, headers: Headers) -> dict[str, MatrixInfo]:
        found = {}
        for module in modules_with(headers, "qweight"):
            num_words, num_outputs = read_header(headers, f"{module}.qweight", ("I32",), 2).shape
            num_groups, _ = read_header(headers, f"{module}.scales", FLOATS, 2).shape
            read_header(headers, f"{module}.qzeros", ("I32",), 2)
            num_inputs = num_words * 32 // self.bits
            check_shape(headers, f"{module}.scales", (num_groups, num_outputs))
            check_shape(headers, f"{module}.qzeros", (num_groups, num_outputs * self.bits // 32))
            check_group_size(num_inputs, num_groups, self.group_size)
            if self.has_order and num_groups > 1:
                read_header(headers, f"{module}.g_idx", INDEX, 1)
            if f"{module}.g_idx" in headers:
                check_shape(headers, f"{module}.g_idx", (num_inputs,))
            found[module] = MatrixInfo(
                "int4" if self.bits == 4 else "int8",
                num_outputs,
                num_inputs,
                num_groups,
                has_zeros=not self.is_symmetric,
                has_order=self.has_order,
            )
        return found

    def read(self, tensors: Tensors, module: str) -> "QuantizedMatrix | None":
        if f"{module}.qweight" not in tensors:
            return None
        from penstock_engine.quantization.matrix import QuantizedMatrix
        from penstock_engine.quantization.unpack import unpack

        middle = 2 ** (self.bits - 1)
        scales = tensors.get(f"{module}.scales")
        words = tensors.get(f"{module}.qweight")
        num_inputs = len(words) * 32 // self.bits
        codes = unpack(words, self.bits, dim=0, length=num_inputs).sub_(middle).char()
        words = tensors.get(f"{module}.qzeros")
        if self.is_first_version:
            words = words + ONES[self.bits]  # modulo 2**32
        zeros = unpack(words, self.bits, dim=1, length=scales.shape[1]).sub_(middle)
        group_size = check_group_size(num_inputs, len(scales), self.group_size)
        order = None
        if f"{module}.g_idx" in tensors:
            order = input_order(tensors.get(f"{module}.g_idx"), num_inputs, group_size)
        return QuantizedMatrix(
            codes.t() if order is None else codes[order].t(),
            scales.t(),
            self.bits,
            group_size,
            zeros.t(),
            order,
        ).without_trivial_zeros()


def input_order(g_idx: "torch.Tensor", num_inputs: int, group_size: int) -> "torch.Tensor | None":
    """Permutation that sorts the inputs by group, int64 [inputs]; None if they are sorted.

    Raises ModelError if groups have different sizes.
    """
    import torch

    if len(g_idx) != num_inputs:
        raise ModelError("BadWeights", f"g_idx is of {len(g_idx)} inputs, not of {num_inputs}")
    expected = torch.arange(num_inputs) // group_size
    if torch.equal(g_idx.long(), expected):
        return None
    order = g_idx.argsort(stable=True)
    if not torch.equal(g_idx[order].long(), expected):
        raise ModelError("BadWeights", "g_idx has groups of different sizes")
    return order
