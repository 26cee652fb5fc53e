"""Whole models: quantized checkpoints against transformers, rounded ones against their own weights."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from benchmarks.engine.greedy_equality import (
    FAMILIES,
    Setting,
    compare,
    generate,
    make_prompts,
    reference,
)
from benchmarks.engine.quantized_equality import campaign
from safetensors.torch import load_file, save_file
from tests.support.engine.quantized_weights import FORMATS, PRODUCTS, quantize

from penstock_engine.checkpoints.weights import checkpoint_files, read_headers, shapes_and_bytes
from penstock_engine.core.errors import ModelError
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.memory.model_files import check_model, check_tensors
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.parameters import model_parameters
from penstock_engine.quantization.rounding import Quantization, RoundToNearest
from penstock_engine.quantization.weight import QuantizedWeight

ITEM_BYTES = {"float32": 4, "bfloat16": 2}


@pytest.mark.parametrize("form", list(FORMATS))
def test_a_quantized_checkpoint_equals_transformers(form: str) -> None:
    """Tokens equal those of the model with its dequantized weights."""
    (result,) = campaign(
        ("qwen3",), (form,), num_prompts=4, longest=80, new_tokens=10, seed=2
    )  # fmt: skip
    assert result.verdicts["different"] == 0
    assert result.verdicts["equal"] >= 3


@pytest.mark.parametrize("family", ["llama", "phi3", "phi", "mixtral"])
@pytest.mark.parametrize("form", ["gptq-4-desc-act", "fp8-block-ragged"])
def test_other_families_spell_their_products_otherwise(family: str, form: str) -> None:
    """Sharded files and biases, products packed already, other names, experts."""
    (result,) = campaign(
        (family,), (form,), num_prompts=3, longest=60, new_tokens=8, seed=3
    )  # fmt: skip
    assert result.verdicts["different"] == 0


def save_rounded(directory: Path, quantization: Quantization, target: Path) -> None:
    """The model with the weights that rounding makes of its own, in float32."""
    rounding = ModelConfig.load(directory).scheme(quantization, "float32")
    assert isinstance(rounding, RoundToNearest)
    shutil.copytree(directory, target)
    tensors = load_file(target / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith(".weight") and name.split(".")[-2] in PRODUCTS:
            tensors[name] = rounding.quantize(tensor).dequantized()
    save_file(tensors, target / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("family", ["qwen3", "mixtral"])
def test_a_rounded_model_equals_transformers_with_the_same_weights(
    request: pytest.FixtureRequest, tmp_path: Path, family: str, quantization: Quantization
) -> None:
    directory = request.getfixturevalue(f"{family}_dir")
    save_rounded(directory, quantization, tmp_path / "written")
    model = FAMILIES[family].load(tmp_path / "written", "float32")
    prompts = make_prompts(6, 100, seed=5)
    expected = [reference(model, prompt, 12) for prompt in prompts]
    setting = Setting(4, 64, prefix_caching=True, speculates=False)
    outputs, _ = generate(directory, prompts, 12, setting, quantization=quantization)
    verdicts = [compare(*pair).verdict for pair in zip(expected, outputs, strict=True)]
    assert set(verdicts) <= {"equal", "tie"}
    assert verdicts.count("equal") >= 5


def load(directory: Path, quantization: Quantization | None, dtype: str) -> PagedModel:
    config = RunnerConfig(
        model_dir=directory, device="cpu", dtype=dtype, num_blocks=4, block_size=16, max_num_seqs=2,
        max_num_batched_tokens=32, max_model_len=64, quantization=quantization,
    )  # fmt: skip
    return PagedModel.load(config)


def weight_bytes(model: PagedModel) -> int:
    modules = list(model.decoder.modules())
    held = sum(m.memory_bytes() for m in modules if isinstance(m, QuantizedWeight))
    return held + sum(parameter.nbytes for parameter in model.decoder.parameters())


@pytest.mark.parametrize("dtype", list(ITEM_BYTES))
@pytest.mark.parametrize("family", ["qwen3", "mixtral"])
def test_headers_say_how_many_bytes_a_rounded_model_has(
    request: pytest.FixtureRequest, family: str, dtype: str
) -> None:
    directory = request.getfixturevalue(f"{family}_dir")
    config = ModelConfig.load(directory)
    (path,) = checkpoint_files(directory)
    expected: dict[Quantization | None, int] = {}
    for quantization in (None, "int8", "int4"):
        scheme = config.scheme(quantization, dtype)
        _, said = shapes_and_bytes(read_headers(path), scheme, ITEM_BYTES[dtype])
        said_bytes = sum(said.values())
        expected[quantization] = said_bytes
        actual = weight_bytes(load(directory, quantization, dtype))
        # Rows of parts are padded one by one, those of int4 to 64: more only with models this small.
        assert actual <= said_bytes <= (1.15 if quantization == "int4" else 1) * actual
    assert expected["int4"] < expected["int8"] < expected[None]


@pytest.mark.parametrize("form", ["awq", "gptq-8", "fp8-block", "int8-channel"])
def test_headers_say_how_many_bytes_a_quantized_checkpoint_takes(
    qwen3_dir: Path, tmp_path: Path, form: str
) -> None:
    quantize(qwen3_dir, FORMATS[form], tmp_path / "packed", tmp_path / "written")
    (path,) = checkpoint_files(tmp_path / "packed")
    scheme = ModelConfig.load(tmp_path / "packed").scheme(None, "float32")
    _, said = shapes_and_bytes(read_headers(path), scheme, 4)
    said_bytes = sum(said.values())
    actual = weight_bytes(load(tmp_path / "packed", None, "float32"))
    assert actual <= said_bytes <= (1.15 if form == "awq" else 1) * actual


def check(directory: Path) -> dict[str, int]:
    """Bytes of each tensor that is loaded, after the checks of the preflight."""
    model = ModelConfig.load(directory)
    return check_tensors(directory, model, model_parameters(model), model.quantization, "float32")


def change_config(directory: Path, **changes: object) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("form", list(FORMATS))
def test_the_headers_of_every_format_pass(qwen3_dir: Path, tmp_path: Path, form: str) -> None:
    quantize(qwen3_dir, FORMATS[form], tmp_path / "packed", tmp_path / "written")
    assert "model.layers.0.mlp.down_proj.weight" in check(tmp_path / "packed")


@pytest.mark.parametrize("form", ["awq", "gptq-4", "packed-int4"])
def test_another_group_size_is_found_by_the_headers(
    qwen3_dir: Path, tmp_path: Path, form: str
) -> None:
    quantize(qwen3_dir, FORMATS[form], tmp_path / "packed", tmp_path / "written")
    config = json.loads((tmp_path / "packed" / "config.json").read_text())
    section = config["quantization_config"]
    for group in section.get("config_groups", {}).values():
        group["weights"]["group_size"] = 8
    if "group_size" in section:
        section["group_size"] = 8
    change_config(tmp_path / "packed", quantization_config=section)
    with pytest.raises(ModelError, match="not whole groups of 8"):
        check(tmp_path / "packed")


@pytest.mark.parametrize(
    ("form", "name", "shape", "needed"),
    [
        ("gptq-4", "qzeros", (5, 0), (4, 20)),
        ("awq", "scales", (5, 1), (5, 160)),
        ("packed-int8-channel", "weight_scale", (3, 1), (160, 1)),
        ("fp8-block", "weight_scale_inv", (1, 1), (4, 2)),
        ("int8-channel", "weight_scale", (3, 1), (160, 1)),
    ],
)
def test_scales_of_another_shape_are_found_by_the_headers(
    qwen3_dir: Path,
    tmp_path: Path,
    form: str,
    name: str,
    shape: tuple[int, int],
    needed: tuple[int, int],
) -> None:
    quantize(qwen3_dir, FORMATS[form], tmp_path / "packed", tmp_path / "written")
    path = tmp_path / "packed" / "model.safetensors"
    tensors = load_file(path)
    whole = f"model.layers.0.mlp.up_proj.{name}"
    tensors[whole] = torch.zeros(shape, dtype=tensors[whole].dtype)
    save_file(tensors, path)
    with pytest.raises(ModelError) as caught:
        check(tmp_path / "packed")
    message = f"{whole} has shape {list(shape)}, but its weight needs {list(needed)}"
    assert str(caught.value) == message


@pytest.mark.parametrize("form", ["int8-channel", "packed-int4"])
def test_quantized_embeddings_are_dequantized_as_they_are_loaded(
    qwen3_dir: Path, tmp_path: Path, form: str
) -> None:
    """Tied to the head, as small models are published."""
    quantize(qwen3_dir, FORMATS[form], tmp_path / "packed", tmp_path / "written")
    path = tmp_path / "packed" / "model.safetensors"
    tensors = load_file(path)
    packed = FORMATS[form].pack(tensors.pop("model.embed_tokens.weight").numpy())
    tensors |= {f"model.embed_tokens.{leaf}": value for leaf, value in packed.tensors.items()}
    save_file(tensors, path)
    model = load(tmp_path / "packed", None, "float32")
    embedding = model.decoder.get_parameter("model.embed_tokens.weight")
    assert torch.equal(embedding, packed.meaning)
    assert check(tmp_path / "packed")["model.embed_tokens.weight"] == embedding.nbytes


def test_routers_and_embeddings_stay_as_they_are(mixtral_dir: Path) -> None:
    model = load(mixtral_dir, "int8", "float32").decoder
    names = {name for name, _ in model.named_parameters() if "norm" not in name}
    assert names == {
        "model.embed_tokens.weight", "lm_head.weight",
        *(f"model.layers.{i}.mlp.gate.weight" for i in range(3)),
    }  # fmt: skip


def test_what_is_quantized_already_is_not_rounded(qwen3_dir: Path, tmp_path: Path) -> None:
    quantize(qwen3_dir, FORMATS["awq"], tmp_path / "packed", tmp_path / "written")
    with pytest.raises(ModelError, match="quantized already") as caught:
        check_model(tmp_path / "packed", "int8")
    assert caught.value.reason == "QuantizedAlready"


def test_a_matrix_of_another_shape_is_named(qwen3_dir: Path, tmp_path: Path) -> None:
    quantize(qwen3_dir, FORMATS["awq"], tmp_path / "packed", tmp_path / "written")
    path = tmp_path / "packed" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"intermediate_size": 128}))
    with pytest.raises(ModelError, match=r"gate_proj\.weight has shape"):
        load(tmp_path / "packed", None, "float32")
