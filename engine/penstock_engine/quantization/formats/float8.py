"""Reads checkpoints with `quant_method: fp8` (DeepSeek, Qwen, AutoFP8).

    weight            float8 (e4m3)  [outputs, inputs]
    weight_scale_inv  f32 or bf16    [outputs / rows, inputs / columns], rounded up; by blocks of
                                     weight_block_size = [rows, columns]
    weight_scale      f32            one, or [outputs] or [outputs, 1]

    weight[o, i] = weight[o, i] * scale of o and i

Each matrix becomes a Float8Weight. Activations are not quantized: a checkpoint's settings for them
(activation_scheme, input_scale) only make GPUs faster, and without them the result is closer to that
of the unquantized model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.errors import unsupported
from penstock_engine.quantization.formats.fields import (
    FLOATS,
    check_group_size,
    check_shape,
    modules_with,
    read_header,
)
from penstock_engine.quantization.scheme import Headers, Kind, MatrixInfo, Tensors

if TYPE_CHECKING:
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

SCALES = ("weight_scale_inv", "weight_scale")

Block = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Float8:
    """The fp8 format of one checkpoint.

    block: rows and columns that share a scale; None: all columns of a row do.
    """

    block: Block | None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "Float8":
        """Parse quantization_config of config.json. Raises ModelError."""
        number_type = str(raw.get("fmt") or "e4m3").lower()
        if not number_type.startswith("e4m3"):
            raise unsupported(
                f"FP8 numbers of the type {number_type} are not supported: take a checkpoint with "
                f"e4m3"
            )
        if raw.get("expert_dtype") not in (None, "fp8"):
            raise unsupported("experts of another type than fp8 are not supported")
        return cls(parse_block(raw.get("weight_block_size")))

    def describe(self, headers: Headers) -> dict[str, MatrixInfo]:
        return {
            module: describe_dense(headers, module, "fp8", leaf, self.block)
            for leaf in SCALES
            for module in modules_with(headers, leaf)
        }

    def read(self, tensors: Tensors, module: str) -> "QuantizedMatrix | None":
        for leaf in SCALES:
            if f"{module}.{leaf}" in tensors:
                return dense_matrix(
                    tensors.get(f"{module}.weight"), tensors.get(f"{module}.{leaf}"), self.block
                )
        return None


def parse_block(given: Any) -> Block | None:
    """Parse a block size, as [128, 128]; None if there is none. Raises ModelError."""
    if given is None:
        return None
    match given:
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
    raise unsupported("the size of a block must be two whole numbers, as in [128, 128]")


def describe_dense(
    headers: Headers,
    module: str,
    kind: Kind,
    leaf: str,
    block: Block | None,
    configured: int | None = None,
) -> MatrixInfo:
    """Describe an unpacked 8-bit weight. Raises ModelError.

    leaf: name of its scales. configured: configured group size; None: not given.
    """
    dtype = "F8_E4M3" if kind == "fp8" else "I8"
    num_outputs, num_inputs = read_header(headers, f"{module}.weight", (dtype,), 2).shape
    scale = read_header(headers, f"{module}.{leaf}", FLOATS)
    zeros = f"{module}.weight_zero_point"
    if block is None:
        num_groups = scale.shape[1] if len(scale.shape) == 2 else 1
        check_group_size(num_inputs, num_groups, configured)
        shapes: list[tuple[int, ...]] = [(num_outputs, num_groups)]
        if num_groups == 1:
            shapes += [(num_outputs,), (1, 1), (1,), ()]
    else:
        num_groups = -(-num_inputs // block[1])
        shapes = [(-(-num_outputs // block[0]), num_groups)]
    for name in (f"{module}.{leaf}", zeros):
        if name in headers:
            check_shape(headers, name, *shapes)
    return MatrixInfo(kind, num_outputs, num_inputs, num_groups, zeros in headers)


def dense_matrix(
    weight: "torch.Tensor",
    scale: "torch.Tensor",
    block: Block | None,
    zeros: "torch.Tensor | None" = None,
    configured: int | None = None,
) -> "QuantizedMatrix":
    """Build a quantized matrix from unpacked 8-bit tensors. Raises ModelError.

    weight: int8 or float8 [outputs, inputs]. scale: by blocks; otherwise one, [outputs], or [outputs,
    groups]. zeros: int8, of scale's shape. configured: configured group size; None: not given.
    """
    from penstock_engine.quantization.matrix import QuantizedMatrix

    num_outputs, num_inputs = weight.shape
    if block is None:
        num_groups = scale.shape[1] if scale.dim() == 2 else 1
        group_size = check_group_size(num_inputs, num_groups, configured)
        by_row = [t.float().reshape(-1, num_groups) for t in (scale, zeros) if t is not None]
        widened = [t.expand(num_outputs, -1) if t.numel() == 1 else t for t in by_row]
    else:
        group_size = block[1]
        by_block = [t.float() for t in (scale, zeros) if t is not None]
        if any(len(t) != -(-num_outputs // block[0]) for t in by_block):
            raise ModelError(
                "BadWeights",
                f"{len(scale)} rows of scales are not one for each {block[0]} of {num_outputs} "
                f"outputs, as weight_block_size or block_structure says",
            )
        widened = [t.repeat_interleave(block[0], 0)[:num_outputs] for t in by_block]
    scales, *rest = widened
    zero_points = rest[0].short() if rest else None
    return QuantizedMatrix(weight, scales, 8, group_size, zero_points).without_trivial_zeros()
