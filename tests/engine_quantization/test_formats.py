"""Packed here by each format's public definition (quantized_equality.py), read by the engine."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.support.engine.quantized_weights import FORMATS

from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.formats.parse import parse_format
from penstock_engine.quantization.linear_weight import make_linear_weight
from penstock_engine.quantization.scheme import Header, Scheme
from penstock_engine.quantization.weight import QuantizedWeight

DTYPES = {
    torch.float8_e4m3fn: "F8_E4M3", torch.int8: "I8", torch.int32: "I32", torch.int64: "I64",
    torch.float16: "F16", torch.float32: "F32",
}  # fmt: skip


class Tensors(dict[str, torch.Tensor]):
    """A checkpoint in memory."""

    def get(self, name: str) -> torch.Tensor:  # type: ignore[override]
        return self[name]

    @property
    def headers(self) -> dict[str, Header]:
        return {name: Header(DTYPES[t.dtype], tuple(t.shape)) for name, t in self.items()}


def scheme_of(config: dict[str, Any]) -> Scheme:
    scheme = parse_format({"quantization_config": config})
    assert scheme is not None
    return scheme


def packed(form: str, shape: tuple[int, int]) -> tuple[Tensors, torch.Tensor]:
    weight = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    product = FORMATS[form].pack(weight)
    tensors = {f"layers.0.o_proj.{leaf}": tensor for leaf, tensor in product.tensors.items()}
    return Tensors(tensors), product.meaning


@pytest.mark.parametrize("shape", [(64, 96), (40, 160), (8, 32)])
@pytest.mark.parametrize("form", list(FORMATS))
def test_a_matrix_means_what_was_packed(form: str, shape: tuple[int, int]) -> None:
    """Weights are equal to the last bit, and the headers give their size in memory."""
    scheme = scheme_of(FORMATS[form].config)
    tensors, meaning = packed(form, shape)
    matrix = scheme.read(tensors, "layers.0.o_proj")
    assert matrix is not None
    assert torch.equal(matrix.dequantized(), meaning)
    weight = make_linear_weight([matrix], torch.float32, "cpu")
    assert isinstance(weight, QuantizedWeight)
    torch.testing.assert_close(weight(torch.eye(shape[1])).T, meaning, rtol=1e-6, atol=1e-6)
    stored = scheme.describe(tensors.headers)["layers.0.o_proj"]
    assert (stored.num_outputs, stored.num_inputs) == shape
    assert stored.memory_bytes(4) == weight.memory_bytes()


@pytest.mark.parametrize("form", list(FORMATS))
def test_a_module_that_is_not_quantized_is_left_alone(form: str) -> None:
    scheme = scheme_of(FORMATS[form].config)
    tensors = Tensors({"lm_head.weight": torch.ones(4, 4)})
    assert scheme.read(tensors, "lm_head") is None
    assert scheme.describe(tensors.headers) == {}


def test_inputs_in_the_order_of_their_importance() -> None:
    """A g_idx that says nothing new costs no sorting."""
    _, expected = packed("gptq-4", (16, 64))
    tensors, _ = packed("gptq-4", (16, 64))
    scheme = scheme_of(FORMATS["gptq-4-desc-act"].config)
    matrix = scheme.read(tensors, "layers.0.o_proj")
    assert matrix is not None
    assert matrix.order is None
    assert torch.equal(matrix.dequantized(), expected)


def test_groups_of_different_sizes_are_refused() -> None:
    tensors, _ = packed("gptq-4", (16, 64))
    tensors["layers.0.o_proj.g_idx"] = torch.zeros(64, dtype=torch.int32)
    with pytest.raises(ModelError, match="different sizes"):
        scheme_of(FORMATS["gptq-4"].config).read(tensors, "layers.0.o_proj")


@pytest.mark.parametrize("form", ["awq", "gptq-4", "packed-int4", "fp8-channel", "int8-channel"])
def test_headers_that_do_not_fit_are_refused(form: str) -> None:
    scheme = scheme_of(FORMATS[form].config)
    tensors, _ = packed(form, (16, 64))
    headers = {
        name: Header("BF16", header.shape) if header.dtype in ("I32", "I8", "F8_E4M3") else header
        for name, header in tensors.headers.items()
    }
    with pytest.raises(ModelError, match="which is not what config"):
        scheme.describe(headers)


def test_a_missing_part_is_named() -> None:
    tensors, _ = packed("awq", (16, 64))
    del tensors["layers.0.o_proj.scales"]
    with pytest.raises(ModelError, match=r"no tensor layers\.0\.o_proj\.scales"):
        scheme_of(FORMATS["awq"].config).describe(tensors.headers)


def compressed(layout: str = "pack-quantized", **weights: Any) -> dict[str, Any]:
    group = {"weights": {"type": "int", "num_bits": 4} | weights}
    return {
        "quant_method": "compressed-tensors", "format": layout, "config_groups": {"g": group}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("config", "advice"),
    [
        ({"quant_method": "bitsandbytes"}, "take the unquantized model"),
        ({"quant_method": ["awq"]}, "take the unquantized model"),
        ("awq", "must be a JSON object"),
        ({"quant_method": "awq", "bits": 3}, "checkpoint of 4 bits"),
        ({"quant_method": "awq", "bits": "4"}, "whole number"),
        ({"quant_method": "awq", "version": "gemv"}, "gemm packing"),
        ({"quant_method": "gptq", "bits": 3}, "4 or 8 bits"),
        ({"quant_method": "gptq", "checkpoint_format": "marlin"}, "gptq or gptq_v2"),
        ({"quant_method": "gptq", "dynamic": {"+:.*up.*": {"bits": 8}}}, "alike throughout"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "with e4m3"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "two whole numbers"),
        ({"quant_method": "fp8", "expert_dtype": "fp4"}, "experts"),
        (compressed("nvfp4-pack-quantized"), "one of pack-quantized"),
        (compressed("float-quantized"), "int4 weights in the format float-quantized"),
        (compressed(num_bits=3), "int of 4 or 8 bits"),
        (compressed(type="float"), "float of 8 bits"),
        (compressed() | {"config_groups": {}}, "need config_groups"),
        (compressed() | {"config_groups": {"g": ["Linear"]}}, "damaged"),
        (compressed() | {"sparsity_config": ["dense"]}, "damaged"),
        (compressed() | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "take a dense"),
        (compressed() | {"transform_config": {"config_groups": {"u": {}}}}, "without"),
    ],
)
def test_what_is_not_supported_says_what_to_take(config: Any, advice: str) -> None:
    with pytest.raises(ModelError, match=advice):
        parse_format({"quantization_config": config})


def test_kinds_that_differ_within_a_checkpoint_are_refused() -> None:
    config = compressed()
    config["config_groups"]["other"] = {"weights": {"type": "int", "num_bits": 8}}
    with pytest.raises(ModelError, match="alike throughout"):
        parse_format({"quantization_config": config})


def test_a_checkpoint_that_is_not_quantized_has_no_format() -> None:
    assert parse_format({"quantization_config": None}) is None
    assert parse_format({}) is None
