"""Packs small checkpoints with the formats' own libraries, with the weights as these read them back.

    python -m benchmarks.engine.packed_checkpoints LIBRARY [--out tests/engine_quantization/checkpoints]

LIBRARY is autoawq, gptqmodel or compressed-tensors, which must be importable. Two versions of
compressed-tensors cannot live in one environment, so each gets a folder of its own:

    pip install --no-deps --target /tmp/old compressed-tensors==0.9.3
    PYTHONPATH=/tmp/old python -m benchmarks.engine.packed_checkpoints compressed-tensors

The committed files were made with autoawq 0.2.7.post3, gptqmodel 7.3.4 and compressed-tensors 0.9.3
and 0.20.0. Each file has one product `layer` in the format, `expected` (the weights [outputs,
inputs] as the library itself unpacks them) and, as metadata, `quantization_config` and `library`.
"""

import importlib
import importlib.util
import json
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from benchmarks.options import option_parser
from safetensors.torch import save_file

OUT = Path(__file__).parents[2] / "tests/engine_quantization/checkpoints"
SHAPE = (16, 32)
GROUP = 16
State = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed product. name: of the file. tensors: by last name part. expected: weights [outputs, inputs]."""

    name: str
    config: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    expected: torch.Tensor


def make_weight(num_outputs: int, num_inputs: int) -> torch.Tensor:
    """Random float32 weights, with all-positive rows (zero point 0) and all-negative rows (largest one)."""
    generator = torch.Generator().manual_seed(num_outputs * num_inputs)
    weight = torch.randn(num_outputs, num_inputs, generator=generator) * 0.02
    weight[1::5] = weight[1::5].abs()
    weight[2::5] = -weight[2::5].abs()
    return weight


def ranges(
    weight: torch.Tensor, bits: int, group: int, symmetric: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and zero points, float32 [outputs, groups]; zero points count from the smallest code."""
    groups = weight.split(group, 1)
    top = 2**bits - 1
    if symmetric:
        scales = torch.stack([part.abs().amax(1) for part in groups], 1) * 2 / top
        return scales.half().float(), torch.full_like(scales, 2 ** (bits - 1))
    least = torch.stack([part.amin(1) for part in groups], 1).clamp(max=0)
    largest = torch.stack([part.amax(1) for part in groups], 1).clamp(min=0)
    scales = ((largest - least) / top).half().float()
    return scales, (-least / scales).round().clamp(0, top)


def linear(weight: torch.Tensor) -> torch.nn.Linear:
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight.data = weight
    return layer


def import_without_parents(module: str) -> types.ModuleType:
    """Import a module with empty parent packages, which would import classes of an old transformers."""
    parents = module.split(".")[:-1]
    spec = importlib.util.find_spec(parents[0])
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"{parents[0]} cannot be imported")
    [root] = spec.submodule_search_locations
    for depth in range(len(parents)):
        name = ".".join(parents[: depth + 1])
        package = types.ModuleType(name)
        package.__path__ = [str(Path(root, *parents[1 : depth + 1]))]
        sys.modules[name] = package
    return importlib.import_module(module)


def autoawq() -> Iterator[Packed]:
    gemm: Any = import_without_parents("awq.modules.linear.gemm")
    packing: Any = importlib.import_module("awq.utils.packing_utils")
    weight = make_weight(2 * SHAPE[0], SHAPE[1])  # the packer takes 32 outputs at a time
    scales, zeros = ranges(weight, 4, GROUP, symmetric=False)
    # AutoAWQ rounds weights to the grid before packing; the packer does not clamp.
    codes = weight / scales.repeat_interleave(GROUP, 1) + zeros.repeat_interleave(GROUP, 1)
    on_grid = codes.round().clamp(0, 15) - zeros.repeat_interleave(GROUP, 1)
    on_grid *= scales.repeat_interleave(GROUP, 1)
    layer = gemm.WQLinear_GEMM.from_linear(
        linear(on_grid), 4, GROUP, scales=scales.T.contiguous(), zeros=zeros.T.contiguous()
    )
    tensors = {leaf: getattr(layer, leaf) for leaf in ("qweight", "qzeros", "scales")}
    expected = packing.dequantize_gemm(*tensors.values(), 4, GROUP).T
    config = {
        "quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm",
        "zero_point": True, "modules_to_not_convert": None,
    }  # fmt: skip
    yield Packed("autoawq-4", config, tensors, expected)


@dataclass(frozen=True, slots=True)
class GptqCase:
    bits: int
    symmetric: bool
    packing: str = "gptq"
    has_order: bool = False
    group: int = GROUP
    shape: tuple[int, int] = SHAPE

    @property
    def name(self) -> str:
        parts = [self.packing.replace("_", "-"), str(self.bits)]
        parts += ["symmetric" if self.symmetric else "asymmetric"]
        parts += ["order"] * self.has_order + ["ragged"] * (self.shape != SHAPE)
        return "-".join(parts)


GPTQ_CASES = (
    GptqCase(4, True),
    GptqCase(4, False),
    GptqCase(8, True),
    GptqCase(8, False, has_order=True),
    GptqCase(4, False, has_order=True),
    GptqCase(4, False, "gptq_v2"),
    GptqCase(8, False, "gptq_v2", has_order=True),
    # The last group is shorter than the others.
    GptqCase(4, False, group=32, shape=(16, 48)),
)


def gptqmodel() -> Iterator[Packed]:
    library: Any = importlib.import_module("gptqmodel.nn_modules.qlinear.torch")
    model: Any = importlib.import_module("gptqmodel.utils.model")
    quantization: Any = importlib.import_module("gptqmodel.quantization")
    for case in GPTQ_CASES:
        weight = make_weight(*case.shape)
        groups = torch.arange(case.shape[1]) // case.group
        if case.has_order:
            groups = groups[torch.randperm(len(groups), generator=torch.Generator().manual_seed(3))]
        order = groups.argsort(stable=True)
        scales, zeros = ranges(weight[:, order], case.bits, case.group, case.symmetric)
        layer = library.TorchLinear(
            bits=case.bits, group_size=case.group, sym=case.symmetric, desc_act=case.has_order,
            in_features=case.shape[1], out_features=case.shape[0], bias=False, register_buffers=True,
        )  # fmt: skip
        layer.pack_original(linear(weight), scales, zeros, groups.int())
        layer.qzero_format(format=2)
        layer.post_init()
        expected = layer.dequantize_weight().T.clone()
        settings: Any = quantization.QuantizeConfig(
            bits=case.bits, group_size=case.group, desc_act=case.has_order, sym=case.symmetric
        )
        if case.packing == "gptq":
            model.convert_gptq_v2_to_v1_format_module(layer, settings)
        leaves = ("qweight", "qzeros", "scales", "g_idx")
        tensors = {leaf: getattr(layer, leaf).clone() for leaf in leaves}
        config = {
            "quant_method": "gptq", "bits": case.bits, "group_size": case.group,
            "sym": case.symmetric, "desc_act": case.has_order, "checkpoint_format": case.packing,
            "pack_dtype": "int32", "meta": {"quantizer": [f"gptqmodel:{version_of('gptqmodel')}"]},
        }  # fmt: skip
        yield Packed(case.name, config, tensors, expected)


@dataclass(frozen=True, slots=True)
class CompressedCase:
    """Case of compressed-tensors. group: None for one scale per row."""

    layout: str
    bits: int
    symmetric: bool
    group: int | None = GROUP
    has_order: bool = False
    shape: tuple[int, int] = SHAPE

    @property
    def name(self) -> str:
        parts = [self.layout.split("-")[0], str(self.bits)]
        parts += ["symmetric" if self.symmetric else "asymmetric"]
        parts += ["channel"] * (self.group is None) + ["order"] * self.has_order
        parts += ["ragged"] * (self.shape != SHAPE)
        return "-".join(parts)


COMPRESSED_CASES = (
    CompressedCase("pack-quantized", 4, True),
    CompressedCase("pack-quantized", 4, False),
    CompressedCase("pack-quantized", 8, True, None),
    CompressedCase("pack-quantized", 8, False),
    # Sizes that do not fill the last 32-bit word.
    CompressedCase("pack-quantized", 4, False, 12, shape=(21, 36)),
    CompressedCase("pack-quantized", 4, False, None, shape=(21, 36)),
    CompressedCase("int-quantized", 8, True, None),
    CompressedCase("int-quantized", 8, False, None),
)
ORDERED_CASES = (
    CompressedCase("pack-quantized", 4, True, has_order=True),
    CompressedCase("pack-quantized", 4, False, has_order=True),
)


def compressed_tensors() -> Iterator[Packed]:
    is_old = version_of("compressed_tensors").startswith("0.9")
    # Version 0.20 refuses to write activation-ordered checkpoints.
    for case in COMPRESSED_CASES + (ORDERED_CASES if is_old else ()):
        weights: dict[str, Any] = {
            "num_bits": case.bits, "type": "int", "symmetric": case.symmetric,
            "strategy": "channel" if case.group is None else "group", "group_size": case.group,
            "actorder": "group" if case.has_order else None,
        }  # fmt: skip
        weight = make_weight(*case.shape)
        size = case.group or case.shape[1]
        state = {"weight": weight}
        groups = torch.arange(case.shape[1]) // size
        if case.has_order:
            groups = groups[torch.randperm(len(groups), generator=torch.Generator().manual_seed(3))]
            state["weight_g_idx"] = groups.int()
        ordered = weight[:, groups.argsort(stable=True)]
        scales, zeros = ranges(ordered, case.bits, size, case.symmetric)
        state["weight_scale"] = scales.half()
        state["weight_zero_point"] = (zeros - 2 ** (case.bits - 1)).to(torch.int8)
        pack = old_compressed if is_old else new_compressed
        tensors, expected = pack(case.layout, weights, state)
        config = {
            "quant_method": "compressed-tensors", "format": case.layout, "ignore": ["lm_head"],
            "quantization_status": "compressed", "version": version_of("compressed_tensors"),
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        }  # fmt: skip
        name = f"compressed-{'old' if is_old else 'new'}-{case.name}"
        yield Packed(name, config, tensors, expected)


def old_compressed(layout: str, weights: dict[str, Any], state: State) -> tuple[State, Any]:
    base: Any = importlib.import_module("compressed_tensors.compressors.base")
    quantization: Any = importlib.import_module("compressed_tensors.quantization")
    settings = quantization.QuantizationArgs(**weights)
    compressor = base.BaseCompressor.load_from_registry(layout, config=None)
    whole = {f"layer.{leaf}": tensor for leaf, tensor in state.items()}
    stored = compressor.compress(whole, {"layer": settings})
    tensors = {name.removeprefix("layer."): tensor for name, tensor in stored.items()}
    return tensors, compressor.decompress_weight(dict(tensors), settings)


def new_compressed(layout: str, weights: dict[str, Any], state: State) -> tuple[State, Any]:
    base: Any = importlib.import_module("compressed_tensors.compressors.base")
    quantization: Any = importlib.import_module("compressed_tensors.quantization")
    settings = quantization.QuantizationArgs(**weights)
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=settings)
    compressor = base.BaseCompressor.get_value_from_registry(layout)
    tensors = compressor.compress(state, scheme)
    return tensors, compressor.decompress(tensors, scheme)["weight"]


def version_of(package: str) -> str:
    if package == "gptqmodel":  # a source tree that is not installed
        return str(importlib.import_module("gptqmodel.version").__version__)
    return version(package)


LIBRARIES: dict[str, tuple[str, Callable[[], Iterator[Packed]]]] = {
    "autoawq": ("autoawq", autoawq),
    "gptqmodel": ("gptqmodel", gptqmodel),
    "compressed-tensors": ("compressed_tensors", compressed_tensors),
}


@torch.inference_mode()
def main() -> None:
    parser = option_parser(__doc__, out=OUT)
    parser.add_argument("library", choices=LIBRARIES)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    package, make = LIBRARIES[args.library]
    for packed in make():
        tensors = {f"layer.{leaf}": tensor for leaf, tensor in packed.tensors.items()}
        tensors["expected"] = packed.expected
        metadata = {
            "library": f"{args.library} {version_of(package)}",
            "quantization_config": json.dumps(packed.config),
        }
        path = args.out / f"{packed.name}.safetensors"
        save_file({name: t.contiguous() for name, t in tensors.items()}, path, metadata)
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
