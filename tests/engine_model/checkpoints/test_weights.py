"""Tests of loading safetensors weights: packed parts, stacked experts, and errors that name the tensor."""

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock_engine.checkpoints.loading import load_weights, warn_of_unused_head
from penstock_engine.checkpoints.weights import checkpoint_files, read_headers
from penstock_engine.core.errors import ModelError
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM


@pytest.fixture
def model_dir(tmp_path: Path, qwen3_dir: Path) -> Path:
    return Path(shutil.copytree(qwen3_dir, tmp_path / "model"))


def load(model_dir: Path, dtype: torch.dtype = torch.float32) -> DecoderForCausalLM:
    config = ModelConfig.load(model_dir)
    model = DecoderForCausalLM(config, max_positions=8, dtype=dtype, device="cpu")
    load_weights(model, model_dir, config.family.names, dtype, "cpu")
    return model


def test_packed_weights_are_the_rows_of_their_parts(model_dir: Path) -> None:
    raw = load_file(model_dir / "model.safetensors")
    attention = load(model_dir).model.layers[1].self_attn
    parts = [raw[f"model.layers.1.self_attn.{name}_proj.weight"] for name in "qkv"]
    assert torch.equal(attention.qkv_proj.weight, torch.cat(parts))


def test_weights_packed_already_are_taken_as_they_are(model_dir: Path) -> None:
    expected = load(model_dir).model.layers[0].self_attn.qkv_proj.weight.clone()
    tensors = load_file(model_dir / "model.safetensors")
    names = [f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkv"]
    packed = torch.cat([tensors.pop(name) for name in names])
    tensors["model.layers.0.self_attn.qkv_proj.weight"] = packed
    save_file(tensors, model_dir / "model.safetensors")
    assert torch.equal(load(model_dir).model.layers[0].self_attn.qkv_proj.weight, expected)


@pytest.mark.parametrize("family", ["mixtral", "qwen3-moe"])
def test_experts_are_stacked_from_their_own_tensors(
    greedy_equality: ModuleType, tmp_path: Path, family: str
) -> None:
    """Names in both spellings: w1, w3 and w2 in Mixtral."""
    greedy_equality.FAMILIES[family].make(tmp_path)
    gate, up, down, mlp = {
        "mixtral": ("w1", "w3", "w2", "block_sparse_moe"),
        "qwen3-moe": ("gate_proj", "up_proj", "down_proj", "mlp"),
    }[family]
    raw = load_file(tmp_path / "model.safetensors")
    experts = load(tmp_path).model.layers[2].mlp.experts
    for index in range(len(experts.down_proj)):
        prefix = f"model.layers.2.{mlp}.experts.{index}"
        both = torch.cat([raw[f"{prefix}.{gate}.weight"], raw[f"{prefix}.{up}.weight"]])
        assert torch.equal(experts.gate_up_proj[index], both)
        assert torch.equal(experts.down_proj[index], raw[f"{prefix}.{down}.weight"])


def test_experts_stacked_already_are_taken_as_they_are(
    greedy_equality: ModuleType, tmp_path: Path
) -> None:
    greedy_equality.FAMILIES["qwen3-moe"].make(tmp_path)
    expected = load(tmp_path).model.layers[0].mlp.experts.down_proj.clone()
    tensors = load_file(tmp_path / "model.safetensors")
    for name in [n for n in tensors if n.startswith("model.layers.0.mlp.experts.") and "down" in n]:
        del tensors[name]
    tensors["model.layers.0.mlp.experts.down_proj"] = expected
    save_file(tensors, tmp_path / "model.safetensors")
    assert torch.equal(load(tmp_path).model.layers[0].mlp.experts.down_proj, expected)


def test_a_missing_expert_is_named(greedy_equality: ModuleType, tmp_path: Path) -> None:
    greedy_equality.FAMILIES["mixtral"].make(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.block_sparse_moe.experts.3.w3.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"layers\.1\.block_sparse_moe\.experts\.3\.w3\.weight"):
        load(tmp_path)


@pytest.mark.parametrize(
    "part",
    [
        torch.zeros(31, 32),
        torch.zeros(32, 31),
        torch.zeros(32),
        torch.zeros(()),
    ],
)
def test_parts_of_another_shape_are_named(model_dir: Path, part: torch.Tensor) -> None:
    tensors = load_file(model_dir / "model.safetensors")
    tensors["model.layers.0.self_attn.k_proj.weight"] = part
    save_file(tensors, model_dir / "model.safetensors")
    with pytest.raises(ModelError, match=r"layers\.0\.self_attn\.k_proj\.weight has shape"):
        load(model_dir)


def test_every_parameter_is_real_afterwards(model_dir: Path) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        parameters = list(load(model_dir, dtype).parameters())
        assert all(p.dtype == dtype and not p.is_meta for p in parameters)


def test_headers_are_read_without_tensors(model_dir: Path) -> None:
    tensors = load_file(model_dir / "model.safetensors")
    headers = read_headers(model_dir / "model.safetensors")
    assert {name: header.shape for name, header in headers.items()} == {
        name: tuple(tensor.shape) for name, tensor in tensors.items()
    }
    assert {header.dtype for header in headers.values()} == {"F32"}


NESTED = (100_000).to_bytes(8, "little") + b"[" * 100_000


@pytest.mark.parametrize(
    "content",
    [b"", b"x" * 7, b"\x05" + b"\0" * 7 + b"[1,2]", b"\xff" * 99, NESTED],
    ids=lambda content: str(content[:20]),
)
def test_files_without_a_header_are_no_weights(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="not a safetensors file"):
        read_headers(tmp_path / "model.safetensors")


def test_a_missing_tensor_is_named(model_dir: Path) -> None:
    tensors = load_file(model_dir / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, model_dir / "model.safetensors")
    with pytest.raises(ModelError, match=r"no tensor model\.norm\.weight"):
        load(model_dir)


def test_a_tensor_of_another_shape_is_named(model_dir: Path) -> None:
    tensors = load_file(model_dir / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(5)
    save_file(tensors, model_dir / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.norm\.weight has shape \[5\]"):
        load(model_dir)


def test_a_damaged_file_is_no_crash(model_dir: Path) -> None:
    path = model_dir / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="damaged or incomplete") as caught:
        load(model_dir)
    assert caught.value.reason == "BadWeights"


@pytest.mark.parametrize(
    "index",
    [
        "{",
        "[]",
        json.dumps({"weight_map": 5}),
        json.dumps({"weight_map": {"x": "absent.safetensors"}}),
        json.dumps({"weight_map": {"x": "../model/part.safetensors"}}),
        json.dumps({"weight_map": {"x": 5}}),
        "[" * 100_000,
    ],
    ids=lambda index: index[:40],
)
def test_a_bad_index_is_refused(model_dir: Path, index: str) -> None:
    """Among others one that names files outside the directory."""
    (model_dir / "model.safetensors").rename(model_dir / "part.safetensors")
    (model_dir / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelError) as caught:
        checkpoint_files(model_dir)
    assert caught.value.reason == "BadWeights"


def test_an_index_beside_the_whole_model_is_not_read(model_dir: Path) -> None:
    (model_dir / "model.safetensors.index.json").write_text('{"weight_map": {"x": "gone"}}')
    assert checkpoint_files(model_dir) == [model_dir / "model.safetensors"]


def test_parts_without_their_index_are_named(model_dir: Path) -> None:
    (model_dir / "model.safetensors").rename(model_dir / "model-00001-of-00002.safetensors")
    message = r"the folder has parts of a model, but no model\.safetensors\.index\.json"
    with pytest.raises(ModelError, match=message):
        checkpoint_files(model_dir)


def test_a_part_that_is_missing_is_named(model_dir: Path) -> None:
    (model_dir / "model.safetensors").unlink()
    index = {"weight_map": {"x": "model-00001-of-00002.safetensors"}}
    (model_dir / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"not there: 'model-00001-of-00002\.safetensors'"):
        checkpoint_files(model_dir)


@pytest.mark.parametrize("shape", [[-4, -8], [0.5, 64], [True, 32]])
def test_shapes_that_are_no_sizes_are_refused(tmp_path: Path, shape: list[float]) -> None:
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 128]}
    header = json.dumps({"x": entry}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(128)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="tensor x has a shape or a place that is no size"):
        read_headers(tmp_path / "model.safetensors")


def test_only_safetensors_are_weights(tmp_path: Path) -> None:
    """Pickled checkpoints run code when they are read: they are never opened."""
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError) as caught:
        checkpoint_files(tmp_path)
    assert caught.value.reason == "NoSafetensors"


@pytest.mark.parametrize(("difference", "expected"), [(0.0, []), (0.1, ["lm_head.weight differs"])])
def test_a_head_that_is_not_used_is_told(
    greedy_equality: ModuleType,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    difference: float,
    expected: list[str],
) -> None:
    """transformers uses such a head, and so gives other answers."""
    greedy_equality.FAMILIES["qwen3"].make(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + difference
    save_file(tensors, tmp_path / "model.safetensors")
    embedding = load(tmp_path).model.embed_tokens.weight
    warn_of_unused_head(tmp_path, embedding)
    assert [record.getMessage()[:22] for record in caplog.records] == expected
