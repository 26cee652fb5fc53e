"""Models that the preflight refuses: each error names the field of the InferenceService to change."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine_server.preflight.preflight_models import (
    GIB,
    MIB,
    URI,
    Damage,
    checked,
    config_with,
    delete_files,
    with_file,
)

from penstock_engine.options.config import EngineConfig


def cut_weights(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 1000)


def change_header(change: Callable[[dict[str, Any]], None]) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / "model.safetensors"
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])

    return damage


def set_int8_norm(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["dtype"] = "I8"


def set_fp8_projection(folder: Path) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    save_file(tensors, folder / "model.safetensors")


def without(name: str) -> Damage:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        del tensors[name]
        save_file(tensors, folder / "model.safetensors")

    return damage


def set_wrong_shape(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["shape"] = [3]


def replace_by_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def remove_shard(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_escaping_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": "../../etc/passwd"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def add_token_beyond_vocabulary(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["new"] = 10**6
    path.write_text(json.dumps(content))


# Name of the case, and: how to damage the folder, the reason of the error, the field to change.
BAD_FOLDERS: dict[str, tuple[Damage, str, str]] = {
    "no config": (delete_files("config.json"), "NotAModel", URI),
    "config is not JSON": (with_file("config.json", b"{"), "BadConfig", URI),
    "config is a list": (with_file("config.json", b"[]"), "BadConfig", URI),
    "another architecture": (
        config_with(architectures=["GPT2LMHeadModel"]), "UnsupportedArchitecture", URI
    ),
    "no architecture": (config_with(architectures=None), "UnsupportedArchitecture", URI),
    "remote code": (
        config_with(architectures=["X"], auto_map={"AutoModel": "x.X"}),
        "UnsupportedArchitecture", URI,
    ),
    "no layers": (config_with(num_hidden_layers=0), "BadConfig", URI),
    "heads that do not divide": (config_with(num_key_value_heads=3), "BadConfig", URI),
    "quantized in an unknown way": (
        config_with(quantization_config={"bits": 4}), "UnsupportedQuantization", URI
    ),
    "unknown kind of layer": (config_with(layer_types=["chunked_attention"] * 4), "BadConfig", URI),
    "unknown rope": (config_with(rope_parameters={"rope_type": "x"}), "BadConfig", URI),
    "no weights": (delete_files("model.safetensors"), "NoSafetensors", URI),
    "only pickled weights": (replace_by_pickle, "NoSafetensors", "safetensors"),
    "weights that end early": (cut_weights, "BadWeights", URI),
    "empty weights": (with_file("model.safetensors", b""), "BadWeights", URI),
    "weights of garbage": (with_file("model.safetensors", b"\x80\x04K\x01." * 99), "BadWeights", URI),
    "weights with a list for a header": (
        with_file("model.safetensors", struct.pack("<Q", 2) + b"[]"), "BadWeights", URI
    ),
    "a pointer instead of weights": (
        with_file("model.safetensors", b"version https://git-lfs\noid sha256:0\n"), "BadWeights", URI
    ),
    "numbers that cannot be served": (change_header(set_int8_norm), "BadWeights", URI),
    "a shape that does not fit its bytes": (change_header(set_wrong_shape), "BadWeights", URI),
    "a shard is missing": (remove_shard, "BadWeights", URI),
    "an index that leads outside": (write_escaping_index, "BadWeights", URI),
    "config of a wider model": (config_with(hidden_size=512), "WeightsMismatch", URI),
    "config of a deeper model": (
        config_with(num_hidden_layers=5, layer_types=None), "WeightsMismatch", URI
    ),
    "config of a larger vocabulary": (config_with(vocab_size=9999), "WeightsMismatch", URI),
    "config of an untied model": (config_with(tie_word_embeddings=False), "WeightsMismatch", URI),
    "a projection is missing": (
        without("model.layers.0.mlp.down_proj.weight"), "WeightsMismatch", URI
    ),
    "a norm is missing": (without("model.norm.weight"), "WeightsMismatch", URI),
    "config asks for biases": (config_with(attention_bias=True), "WeightsMismatch", URI),
    "config of another width within layers": (
        config_with(intermediate_size=64), "WeightsMismatch", URI
    ),
    "numbers of an unnamed quantization": (set_fp8_projection, "BadWeights", URI),
    "config nested too deeply": (with_file("config.json", b"[" * 100_000), "BadConfig", URI),
    "no tokenizer": (delete_files("tokenizer.json"), "NoTokenizer", URI),
    "a tokenizer of garbage": (with_file("tokenizer.json", b"{}"), "BadTokenizer", URI),
    "settings of a tokenizer that are not JSON": (
        with_file("tokenizer_config.json", b"{"), "BadTokenizer", URI
    ),
    "a tokenizer of another model": (add_token_beyond_vocabulary, "BadTokenizer", URI),
}  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "reason", "field"), BAD_FOLDERS.values(), ids=BAD_FOLDERS.keys()
)
def test_an_invalid_folder_is_rejected(
    folder: Path, damage: Damage, reason: str, field: str
) -> None:
    config = EngineConfig(model_dir=folder, dtype="float32")
    assert checked(config, memory_limit_bytes=4 * GIB)["ok"]
    damage(folder)
    verdict = checked(config, memory_limit_bytes=4 * GIB)
    assert (verdict["ok"], verdict["reason"]) == (False, reason)
    assert field in verdict["message"]
    assert str(folder) not in verdict["message"]


def test_a_tokenizer_of_another_folder_is_named(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    config = EngineConfig(model_dir=folder, dtype="float32", tokenizer=other)
    verdict = checked(config, memory_limit_bytes=4 * GIB)
    assert verdict["reason"] == "NoTokenizer"
    assert f"--tokenizer {other}: the folder has no tokenizer.json" in verdict["message"]


@pytest.mark.parametrize("uri", ["absent", "file"])
def test_a_missing_folder_is_rejected(tmp_path: Path, uri: str) -> None:
    (tmp_path / "file").touch()
    verdict = checked(EngineConfig(model_dir=tmp_path / uri), memory_limit_bytes=GIB)
    assert verdict["reason"] == "ModelNotFound"
    assert URI in verdict["message"]
    assert str(tmp_path / uri) in verdict["message"]


# Changes to the config, memory in bytes, the reason of the error, and a part of its message.
TOO_MUCH: list[tuple[dict[str, Any], int, str, str]] = [
    ({}, 64 * MIB, "MemoryTooSmall", "spec.resources.limits.memory to at least "),
    ({"gpu_memory_utilization": 0.1}, 4 * GIB, "MemoryTooSmall", "spec.resources.limits.memory"),
    ({"max_num_batched_tokens": 200_000}, GIB, "MemoryTooSmall", "spec.resources.limits.memory"),
    ({"kv_cache_memory_bytes": 8 * GIB}, 4 * GIB, "MemoryTooSmall", "8192 MiB of KV cache"),
    ({"num_gpu_blocks_override": 10**7}, 4 * GIB, "MemoryTooSmall", "spec.resources.limits.memory"),
    ({"kv_cache_memory_bytes": MIB}, 4 * GIB, "KVCacheTooSmall", "kvCache.memory to at least 16Mi"),
    ({"num_gpu_blocks_override": 10}, 4 * GIB, "KVCacheTooSmall", "maxModelLen to at most 160"),
    ({"max_model_len": 4097}, 4 * GIB, "ContextTooLong", "set it to at most 4096"),
    ({"tensor_parallel_size": 3}, 4 * GIB, "CannotSplit", "accelerators in spec.resources.limits"),
]


@pytest.mark.parametrize(("changes", "memory", "reason", "advice"), TOO_MUCH)
def test_a_model_that_does_not_fit_is_rejected_with_advice(
    model_dir: Path, changes: dict[str, Any], memory: int, reason: str, advice: str
) -> None:
    config = EngineConfig(model_dir=model_dir, dtype="float32", **changes)
    verdict = checked(config, memory_limit_bytes=memory)
    assert (verdict["ok"], verdict["reason"]) == (False, reason)
    assert advice in verdict["message"]


def test_errors_have_many_reasons() -> None:
    reasons = {reason for _, reason, _ in BAD_FOLDERS.values()} | {r for _, _, r, _ in TOO_MUCH}
    assert len(reasons | {"ModelNotFound"}) >= 12
