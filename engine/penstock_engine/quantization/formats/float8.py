"""Checkpoints with `quant_method: fp8`: DeepSeek's, Qwen's, AutoFP8's.

    weight            float8 (e4m3)  [outputs, inputs]
    weight_scale_inv  f32 or bf16    [outputs / rows, inputs / columns], rounded up; by blocks of
                                     weight_block_size = [rows, columns]
    weight_scale      f32            one, or [outputs] or [outputs, 1]

    weight[o, i] = weight[o, i] * scale of o and i

Each becomes a Float8Weight. Activations are not quantised: what a checkpoint says of theirs
(activation_scheme, input_scale) is about speed on GPUs, and leaving them exact only brings the
result closer to that of the unquantised model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.formats.fields import even_groups, header, modules_with
from penstock_engine.quantization.stored import Headers, Kind, Stored, Tensors, unsupported

if TYPE_CHECKING:
    import torch

    from penstock_engine.quantization.matrix import QuantizedMatrix

SCALES = ("weight_scale_inv", "weight_scale")

Block = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Float8:
    """block: rows and columns that share a scale; None: all columns do."""

    block: Block | None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "Float8":
        """Raises ModelError."""
        number_type = str(raw.get("fmt") or "e4m3").lower()
        if not number_type.startswith("e4m3"):
            raise unsupported(
                f"FP8 numbers of the type {number_type} are not supported: take a checkpoint with "
                f"e4m3"
            )
        if raw.get("expert_dtype") not in (None, "fp8"):
            raise unsupported("experts of another type than fp8 are not supported")
        return cls(parse_block(raw.get("weight_block_size")))

    def stored(self, headers: Headers) -> dict[str, Stored]:
        return {
            module: stored_dense(headers, module, "fp8", leaf, self.block)
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
    """Raises ModelError."""
    if given is None:
        return None
    match given:
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
    raise unsupported("the size of a block must be two whole numbers, as in [128, 128]")


def stored_dense(
    headers: Headers, module: str, kind: Kind, leaf: str, block: Block | None
) -> Stored:
    """Of a weight that is stored number by number. leaf: of its scales. Raises ModelError."""
    dtype = "F8_E4M3" if kind == "fp8" else "I8"
    num_outputs, num_inputs = header(headers, f"{module}.weight", (dtype,), 2).shape
    scale = headers[f"{module}.{leaf}"]
    num_groups = scale.shape[1] if len(scale.shape) == 2 else 1
    if block is None:
        even_groups(num_inputs, num_groups)
    else:
        num_groups = -(-num_inputs // block[1])
    has_zeros = f"{module}.weight_zero_point" in headers
    return Stored(kind, num_outputs, num_inputs, num_groups, has_zeros)


def dense_matrix(
    weight: "torch.Tensor",
    scale: "torch.Tensor",
    block: Block | None,
    zeros: "torch.Tensor | None" = None,
    configured: int | None = None,
) -> "QuantizedMatrix":
    """weight: int8 or float8 [outputs, inputs]. scale: of blocks; or one, [outputs], or
    [outputs, groups]. zeros: int8 like scale. configured: inputs of a group, if that is known.
    Raises ModelError."""
    from penstock_engine.quantization.matrix import QuantizedMatrix

    num_outputs, num_inputs = weight.shape
    if block is None:
        num_groups = scale.shape[1] if scale.dim() == 2 else 1
        group_size = even_groups(num_inputs, num_groups, configured)
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
    return QuantizedMatrix(weight, scales, 8, group_size, zero_points).without_idle_zeros()
