"""Reads checkpoints in the compressed-tensors format of LLM Compressor.

`pack-quantized`, integers of 4 or 8 bits:

    weight_packed      int32  [outputs, inputs * bits / 32]   number + 2**(bits - 1), lowest first
    weight_scale       float  [outputs, groups]               one group: a scale for each row
    weight_zero_point  int32  [outputs * bits / 32, groups]   packed in the same way; absent: 0
                       int8   [outputs, groups]               before version 0.9.4: not packed
    weight_shape       int64  [2]                             outputs, inputs
    weight_g_idx       int32  [inputs]                        as g_idx in GPTQ; rare

`int-quantized`, `float-quantized` and `naive-quantized`, of 8 bits:

    weight             int8 or float8 (e4m3)  [outputs, inputs]
    weight_scale       float                  one, [outputs, 1], [outputs, groups] or by blocks
    weight_zero_point  int8                   like weight_scale; absent: 0

    weight[o, i] = (weight[o, i] - zero point) * scale

4-bit integers become an Int4Weight, 8-bit integers an Int8Weight, float8 a Float8Weight. As in
float8.py, the settings for quantization of activations and of the KV cache (kv_cache_scheme) are
ignored.
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
    modules_with,
    read_count,
    read_header,
)
from penstock_engine.quantization.formats.float8 import (
    Block,
    dense_matrix,
    describe_dense,
    parse_block,
)
from penstock_engine.quantization.formats.gptq import input_order
from penstock_engine.quantization.scheme import Headers, Kind, MatrixInfo, Tensors

if TYPE_CHECKING:
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

DENSE = ("int-quantized", "float-quantized", "naive-quantized")
FORMATS = ("pack-quantized", *DENSE)
# Values of `actorder` with which the inputs of a group are not consecutive.
OUT_OF_ORDER = ("group", "dynamic")


@dataclass(frozen=True, slots=True)
class CompressedTensors:
    """The compressed-tensors format of one checkpoint.

    kind: of all weights. block: rows and columns that share a scale; None: not in blocks. group_size:
    inputs that share a scale; None: it follows from the tensors' shapes. has_zeros, has_order: whether
    each packed weight has zero points, and an order of its inputs.
    """

    kind: Kind
    is_packed: bool
    block: Block | None
    group_size: int | None
    has_zeros: bool
    has_order: bool

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "CompressedTensors":
        """Parse quantization_config of config.json. Raises ModelError."""
        layout = str(raw.get("format"))
        if layout not in FORMATS:
            raise unsupported(
                f"compressed-tensors in the format {layout} are not supported: take a checkpoint "
                f"in one of {', '.join(FORMATS)}"
            )
        _refuse_changed_weights(raw)
        kind, block = _weights(raw.get("config_groups"))
        if (layout == "pack-quantized") != (kind == "int4") and kind != "int8":
            raise unsupported(f"{kind} weights in the format {layout} are not supported")
        groups = [group["weights"] for group in raw["config_groups"].values()]
        sizes = {_group_size(weights) for weights in groups}
        return cls(
            kind=kind,
            is_packed=layout == "pack-quantized",
            block=block,
            group_size=sizes.pop() if len(sizes) == 1 else None,
            has_zeros=not any(weights.get("symmetric", True) for weights in groups),
            has_order=all(weights.get("actorder") in OUT_OF_ORDER for weights in groups),
        )

    @property
    def bits(self) -> int:
        return 4 if self.kind == "int4" else 8

    def describe(self, headers: Headers) -> dict[str, MatrixInfo]:
        if self.is_packed:
            packed = modules_with(headers, "weight_packed")
            return {module: self._packed(headers, module) for module in packed}
        dense = list(modules_with(headers, "weight_scale"))
        for module in dense if self.has_zeros else ():
            read_header(headers, f"{module}.weight_zero_point", ("I8",))
        return {
            module: describe_dense(
                headers, module, self.kind, "weight_scale", self.block, self.group_size
            )
            for module in dense
        }

    def _packed(self, headers: Headers, module: str) -> MatrixInfo:
        num_outputs, num_words = read_header(headers, f"{module}.weight_packed", ("I32",), 2).shape
        _, num_groups = read_header(headers, f"{module}.weight_scale", FLOATS, 2).shape
        zeros = f"{module}.weight_zero_point"
        has_zeros = self.has_zeros or zeros in headers
        num_inputs = self._num_inputs(num_words, num_groups)
        check_shape(headers, f"{module}.weight_scale", (num_outputs, num_groups))
        check_group_size(num_inputs, num_groups, self.group_size)
        if self.has_order and num_groups > 1:
            read_header(headers, f"{module}.weight_g_idx", INDEX, 1)
        if has_zeros:
            is_packed = read_header(headers, zeros, ("I32", "I8"), 2).dtype == "I32"
            num_rows = -(-num_outputs * self.bits // 32) if is_packed else num_outputs
            check_shape(headers, zeros, (num_rows, num_groups))
        return MatrixInfo(
            self.kind,
            num_outputs,
            num_inputs,
            num_groups,
            has_zeros=has_zeros,
            has_order=f"{module}.weight_g_idx" in headers,
        )

    def _num_inputs(self, num_words: int, num_groups: int) -> int:
        """Inputs of a packed row. Only whole groups say how full its last word is."""
        in_a_word = 32 // self.bits
        most = num_words * in_a_word
        grouped = num_groups * (self.group_size or 0)
        return grouped if most - in_a_word < grouped <= most else most

    def read(self, tensors: Tensors, module: str) -> "QuantizedMatrix | None":
        if f"{module}.weight_scale" not in tensors:
            return None
        if self.is_packed:
            return self._read_packed(tensors, module)
        zeros = f"{module}.weight_zero_point"
        return dense_matrix(
            tensors.get(f"{module}.weight"),
            tensors.get(f"{module}.weight_scale"),
            self.block,
            tensors.get(zeros) if zeros in tensors else None,
            self.group_size,
        )

    def _read_packed(self, tensors: Tensors, module: str) -> "QuantizedMatrix":
        import torch

        from penstock_engine.quantization.matrix import QuantizedMatrix
        from penstock_engine.quantization.unpack import unpack

        num_outputs, num_inputs = _shape(tensors.get(f"{module}.weight_shape"))
        middle = 2 ** (self.bits - 1)
        scales = tensors.get(f"{module}.weight_scale")
        words = tensors.get(f"{module}.weight_packed")
        codes = unpack(words, self.bits, dim=1, length=num_inputs).sub_(middle).char()
        zeros = order = None
        if (name := f"{module}.weight_zero_point") in tensors:
            zeros = tensors.get(name)
            if zeros.dtype == torch.int8:
                zeros = zeros.short()
            else:
                zeros = unpack(zeros, self.bits, dim=0, length=num_outputs).sub_(middle)
        group_size = check_group_size(num_inputs, scales.shape[1], self.group_size)
        if (name := f"{module}.weight_g_idx") in tensors:
            order = input_order(tensors.get(name), num_inputs, group_size)
            codes = codes if order is None else codes[:, order]
        return QuantizedMatrix(codes, scales, self.bits, group_size, zeros, order)


def _shape(tensor: "torch.Tensor") -> tuple[int, int]:
    """(outputs, inputs) from weight_shape. Raises ModelError."""
    match tensor.tolist():
        case [int(num_outputs), int(num_inputs)] if num_outputs > 0 and num_inputs > 0:
            return num_outputs, num_inputs
    raise ModelError("BadWeights", "weight_shape is not two numbers, of outputs and of inputs")


def _refuse_changed_weights(raw: Mapping[str, Any]) -> None:
    """Raise ModelError for weights that are sparse or transformed."""
    sparsity = raw.get("sparsity_config") or {}
    if sparsity.get("format", "dense") != "dense":
        raise unsupported("sparse compressed-tensors are not supported: take a dense checkpoint")
    if (raw.get("transform_config") or {}).get("config_groups"):
        raise unsupported(
            "compressed-tensors with transforms are not supported: take a checkpoint without"
        )


def _weights(groups: Any) -> tuple[Kind, Block | None]:
    """Kind and block size of the weights, which must be the same in all groups of modules.

    Raises ModelError.
    """
    if not isinstance(groups, dict) or not groups:
        raise unsupported("compressed-tensors need config_groups in quantization_config")
    found = {_group_weights(group) for group in groups.values()}
    if len(found) > 1:
        raise unsupported(
            "compressed-tensors of several kinds in one checkpoint are not supported: take one "
            "that is quantized alike throughout"
        )
    return found.pop()


def _group_size(weights: Mapping[str, Any]) -> int | None:
    """Configured group size; None: unknown, or all inputs are one group. Raises ModelError."""
    is_grouped = weights.get("strategy") == "group" and weights.get("group_size") != -1
    return (
        read_count(weights, "group_size", 1) if is_grouped and weights.get("group_size") else None
    )


def _group_weights(group: Any) -> tuple[Kind, Block | None]:
    weights = group["weights"]
    key = (weights["type"], weights["num_bits"])
    block = weights.get("block_structure") if weights.get("strategy") == "block" else None
    kinds: dict[Any, Kind] = {("int", 4): "int4", ("int", 8): "int8", ("float", 8): "fp8"}
    if key not in kinds:
        raise unsupported(
            f"{key[0]} weights of {key[1]} bits are not supported: take a checkpoint with int of 4 "
            f"or 8 bits, or float of 8 bits"
        )
    return kinds[key], parse_block(block)
