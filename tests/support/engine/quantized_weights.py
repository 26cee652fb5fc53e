"""Rounds and packs the weights of a checkpoint by each quantization format's public definition."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

Array = np.ndarray[Any, Any]
Tensors = dict[str, torch.Tensor]

GROUP = 16
# Quantized modules; other weights stay unchanged.
PRODUCTS = frozenset((
    "q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "dense", "gate_proj", "up_proj",
    "gate_up_proj", "down_proj", "fc1", "fc2", "w1", "w2", "w3",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed product: its tensors by last name part, and the matrix that they represent."""

    tensors: Tensors
    meaning: torch.Tensor


@dataclass(frozen=True, slots=True)
class Format:
    """Quantization format. config: its quantization_config. pack: float32 [outputs, inputs] to Packed."""

    config: dict[str, Any]
    pack: Callable[[Array], Packed]


def words(numbers: Array, bits: int, order: list[int] | None = None) -> Array:
    """Pack [n, m] into 32-bit words, int32 [n, m * bits / 32].

    order[i]: number at position i from the low end.
    """
    per_word = 32 // bits
    order = order or list(range(per_word))
    packed = np.zeros((numbers.shape[0], numbers.shape[1] // per_word), np.uint32)
    for word in range(packed.shape[1]):
        for i, place in enumerate(order):
            number = numbers[:, word * per_word + place].astype(np.uint32)
            packed[:, word] |= number << np.uint32(bits * i)
    return packed.view(np.int32)


def rounded(weight: Array, bits: int, group: int, *, symmetric: bool) -> tuple[Array, Array, Array]:
    """Round to nearest. Returns codes [o, i] from 0, scales float16 [o, g], zero points [o, g] from 0."""
    groups = weight.reshape(len(weight), -1, group)
    top = 2**bits - 1
    if symmetric:
        scales = np.abs(groups).max(2) / (top // 2)
        scales = scales.astype(np.float16)
        zeros = np.full(scales.shape, 2 ** (bits - 1))
    else:
        least, largest = groups.min(2), groups.max(2)
        scales = ((largest - least) / top).astype(np.float16)
        zeros = np.clip(np.round(-least / scales.astype(np.float32)), 1, top)
    steps = np.round(groups / scales[..., None].astype(np.float32)) + zeros[..., None]
    return np.clip(steps, 0, top).reshape(weight.shape).astype(int), scales, zeros.astype(int)


def meaning(codes: Array, scales: Array, zeros: Array, group_of: Array) -> torch.Tensor:
    numbers = (codes - zeros[:, group_of]).astype(np.float32)
    return torch.from_numpy(numbers * scales[:, group_of].astype(np.float32))


def tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def awq(weight: Array) -> Packed:
    codes, scales, zeros = rounded(weight, 4, GROUP, symmetric=False)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    tensors = {
        "qweight": tensor(words(codes.T, 4, order)),
        "qzeros": tensor(words(zeros.T, 4, order)),
        "scales": tensor(scales.T),
    }
    return Packed(tensors, meaning(codes, scales, zeros, np.arange(codes.shape[1]) // GROUP))


def gptq(
    bits: int, *, symmetric: bool = True, desc_act: bool = False, version: int = 1
) -> Callable[[Array], Packed]:
    def pack(weight: Array) -> Packed:
        num_inputs = weight.shape[1]
        group_of = np.arange(num_inputs) // GROUP
        if desc_act:  # equal for all products of one input, as activation order is
            group_of = np.random.default_rng(num_inputs).permutation(group_of)
        order = np.argsort(group_of, kind="stable")
        by_group, scales, zeros = rounded(weight[:, order], bits, GROUP, symmetric=symmetric)
        codes = np.empty_like(by_group)
        codes[:, order] = by_group
        tensors = {
            "qweight": tensor(words(codes, bits).T),
            "qzeros": tensor(words((zeros - (version == 1)).T, bits)),
            "scales": tensor(scales.T),
            "g_idx": tensor(group_of.astype(np.int32)),
        }
        return Packed(tensors, meaning(codes, scales, zeros, group_of))

    return pack


def float8(block: tuple[int, int] | None, leaf: str) -> Callable[[Array], Packed]:
    """Format with 8-bit floats. block: None for one scale per matrix; 0 columns for one per row."""

    def pack(weight: Array) -> Packed:
        rows, columns = block or weight.shape
        columns = columns or weight.shape[1]
        full = torch.from_numpy(weight)
        codes = torch.empty(full.shape, dtype=torch.float8_e4m3fn)
        written = torch.empty_like(full)
        scales = torch.empty(-(-len(full) // rows), -(-full.shape[1] // columns))
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                part = (
                    slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
                )  # fmt: skip
                scales[i, j] = full[part].abs().max() / 448
                codes[part] = (full[part] / scales[i, j]).to(torch.float8_e4m3fn)
                written[part] = codes[part].float() * scales[i, j]
        stored = scales if block else scales.reshape(())
        tensors = {"weight": codes, leaf: stored}
        if block is None:
            tensors["input_scale"] = torch.tensor(1.0)
        return Packed(tensors, written)

    return pack


def packed_integers(bits: int, *, group: int | None, symmetric: bool) -> Callable[[Array], Packed]:
    def pack(weight: Array) -> Packed:
        size = group or weight.shape[1]
        codes, scales, zeros = rounded(weight, bits, size, symmetric=symmetric)
        tensors = {
            "weight_packed": tensor(words(codes, bits)),
            "weight_scale": tensor(scales),
            "weight_shape": torch.tensor(weight.shape),
        }
        if not symmetric:
            tensors["weight_zero_point"] = tensor(words(zeros.T, bits).T)
        return Packed(tensors, meaning(codes, scales, zeros, np.arange(weight.shape[1]) // size))

    return pack


def plain_int8(weight: Array) -> Packed:
    codes, scales, zeros = rounded(weight, 8, weight.shape[1], symmetric=True)
    tensors = {"weight": tensor((codes - 128).astype(np.int8)), "weight_scale": tensor(scales)}
    return Packed(tensors, meaning(codes, scales, zeros, np.zeros(weight.shape[1], int)))


def gptq_config(bits: int, **more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "desc_act": False} | more


def compressed(layout: str, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"symmetric": True} | weights}
    return {
        "quant_method": "compressed-tensors", "format": layout, "ignore": ["lm_head"],
        "quantization_status": "compressed", "config_groups": {"group_0": group},
    }  # fmt: skip


FORMATS: dict[str, Format] = {
    "awq": Format(
        {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm",
         "zero_point": True}, awq,
    ),
    "gptq-4": Format(gptq_config(4, sym=True), gptq(4)),
    "gptq-4-asymmetric": Format(
        gptq_config(4, sym=False, checkpoint_format="gptq_v2"),
        gptq(4, symmetric=False, version=2),
    ),
    "gptq-4-desc-act": Format(gptq_config(4, desc_act=True), gptq(4, desc_act=True)),
    "gptq-8": Format(gptq_config(8, sym=True), gptq(8)),
    "gptq-8-asymmetric-desc-act": Format(
        gptq_config(8, sym=False, desc_act=True), gptq(8, symmetric=False, desc_act=True)
    ),
    "fp8-tensor": Format(
        {"quant_method": "fp8", "activation_scheme": "static"}, float8(None, "weight_scale")
    ),
    "fp8-channel": Format(
        {"quant_method": "fp8", "activation_scheme": "dynamic"}, float8((1, 0), "weight_scale")
    ),
    "fp8-block": Format(
        {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
         "weight_block_size": [48, 32]}, float8((48, 32), "weight_scale_inv"),
    ),
    "fp8-block-ragged": Format(
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        float8((128, 128), "weight_scale_inv"),
    ),
    "packed-int4": Format(
        compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=GROUP),
        packed_integers(4, group=GROUP, symmetric=True),
    ),
    "packed-int4-asymmetric": Format(
        compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=GROUP,
                   symmetric=False),
        packed_integers(4, group=GROUP, symmetric=False),
    ),
    "packed-int8-channel": Format(
        compressed("pack-quantized", num_bits=8, type="int", strategy="channel"),
        packed_integers(8, group=None, symmetric=True),
    ),
    "int8-channel": Format(
        compressed("int-quantized", num_bits=8, type="int", strategy="channel"), plain_int8
    ),
    "float8-channel": Format(
        compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
        float8((1, 0), "weight_scale"),
    ),
    "float8-block": Format(
        compressed("float-quantized", num_bits=8, type="float", strategy="block",
                   block_structure=[32, 32]),
        float8((32, 32), "weight_scale"),
    ),
}  # fmt: skip


def quantize(directory: Path, form: Format, packed: Path, written: Path) -> None:
    """Quantize a checkpoint: write `packed` in the format and `written` dequantized in float32."""
    tensors: Tensors = {}
    for file in sorted(directory.glob("*.safetensors")):
        tensors |= load_file(file)
    packed_tensors: Tensors = {}
    for name in list(tensors):
        module, _, leaf = name.rpartition(".")
        if leaf != "weight" or module.rpartition(".")[2] not in PRODUCTS:
            packed_tensors[name] = tensors[name]
            continue
        product = form.pack(tensors[name].numpy())
        tensors[name] = product.meaning.contiguous()
        packed_tensors |= {f"{module}.{last}": t for last, t in product.tensors.items()}
    for target, content in ((packed, packed_tensors), (written, tensors)):
        target.mkdir(exist_ok=True)
        for other in ("config.json", "generation_config.json"):
            shutil.copy(directory / other, target)
        save_file(content, target / "model.safetensors", {"format": "pt"})
    config = json.loads((packed / "config.json").read_text())
    (packed / "config.json").write_text(json.dumps(config | {"quantization_config": form.config}))
