"""Tests of the preflight check: each error names the field of the InferenceService to change."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from penstock_engine.config import EngineConfig
from penstock_engine.core.speculation import SpeculationConfig
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.parameters import checkpoint_tensors, draft_head_parameters
from penstock_engine.preflight import find_model, preflight

COMMAND = Path(sys.executable).with_name("penstock-engine")
MIB = 2**20
GIB = 2**30

Damage = Callable[[Path], None]


@pytest.fixture
def folder(model_dir: Path, tmp_path: Path) -> Path:
    """A copy of the model that a test may damage."""
    copy = tmp_path / "model"
    copy.mkdir()
    for file in model_dir.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def config_with(**changes: Any) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def delete_files(*names: str) -> Damage:
    def damage(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


def with_file(name: str, content: bytes) -> Damage:
    return lambda folder: void((folder / name).write_bytes(content))


def void(_: object) -> None:
    pass


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


URI = "spec.model.uri"

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
    assert preflight(config, memory_limit_bytes=4 * GIB)["ok"]
    damage(folder)
    verdict = preflight(config, memory_limit_bytes=4 * GIB)
    assert (verdict["ok"], verdict["reason"]) == (False, reason)
    assert field in verdict["message"]
    assert str(folder) not in verdict["message"]


def test_a_template_that_cannot_be_compiled_is_refused(folder: Path) -> None:
    """The advice fits the model's own templates too."""
    with_file("chat_template.jinja", b"{% if %}")(folder)
    done = run(folder, "--memory-limit-bytes", str(4 * GIB))
    verdict = json.loads(done.stdout)
    assert verdict["reason"] == "BadChatTemplate"
    assert verdict["message"].startswith("chat_template.jinja: line 1: ")
    advice = ": set spec.engine.parsers.chatTemplate to a template that can be compiled"
    assert verdict["message"].endswith(advice)


def test_a_tokenizer_of_another_folder_is_named(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    config = EngineConfig(model_dir=folder, dtype="float32", tokenizer=other)
    verdict = preflight(config, memory_limit_bytes=4 * GIB)
    assert verdict["reason"] == "NoTokenizer"
    assert f"--tokenizer {other}: the folder has no tokenizer.json" in verdict["message"]


@pytest.mark.parametrize("uri", ["absent", "file"])
def test_a_missing_folder_is_rejected(tmp_path: Path, uri: str) -> None:
    (tmp_path / "file").touch()
    verdict = preflight(EngineConfig(model_dir=tmp_path / uri), memory_limit_bytes=GIB)
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
    verdict = preflight(config, memory_limit_bytes=memory)
    assert (verdict["ok"], verdict["reason"]) == (False, reason)
    assert advice in verdict["message"]


def test_errors_have_many_reasons() -> None:
    reasons = {reason for _, reason, _ in BAD_FOLDERS.values()} | {r for _, _, r, _ in TOO_MUCH}
    assert len(reasons | {"ModelNotFound"}) >= 12


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_the_accelerator_in_the_message_is_the_smallest(model_dir: Path, num_ranks: int) -> None:
    config = EngineConfig(
        model_dir=model_dir, device="cuda", max_model_len=1024, tensor_parallel_size=num_ranks
    )
    message = preflight(config, accelerator_memory_bytes=32 * MIB)["message"]
    advised_mib = int(message.rsplit("at least ", 1)[1].partition(" MiB")[0])
    assert preflight(config, accelerator_memory_bytes=advised_mib * MIB)["ok"]
    assert not preflight(config, accelerator_memory_bytes=(advised_mib - 1) * MIB)["ok"]


@pytest.mark.parametrize("memory", [64 * MIB, 700 * MIB])
def test_the_memory_in_the_message_is_the_minimum(model_dir: Path, memory: int) -> None:
    config = EngineConfig(model_dir=model_dir, dtype="float32", max_model_len=1024)
    message = preflight(config, memory_limit_bytes=memory)["message"]
    advised_mib = int(message.rsplit("at least ", 1)[1].removesuffix("Mi"))
    assert preflight(config, memory_limit_bytes=advised_mib * MIB)["ok"]
    assert not preflight(config, memory_limit_bytes=(advised_mib - 1) * MIB)["ok"]


def test_the_verdict_has_sizes_of_weights_and_cache(model_dir: Path) -> None:
    config = EngineConfig(model_dir=model_dir, dtype="float32", max_num_seqs=2)
    verdict = preflight(config, memory_limit_bytes=4 * GIB)
    with safe_open(model_dir / "model.safetensors", "np") as weights:
        num_bytes = sum(weights.get_tensor(name).nbytes for name in weights.keys())  # noqa: SIM118
    assert verdict == {
        "ok": True,
        "architecture": "Qwen3ForCausalLM",
        "model_type": "qwen3",
        "weights_bytes": num_bytes,
        "kv_bytes_per_token": 2 * 4 * 4 * 32 * 4,
        "max_model_len": 4096,
        "eos_token_ids": [0, 2],
        "kv_capacity_tokens": 2 * 4096,
        "max_num_seqs": 2,
        "max_num_batched_tokens": 512,
        "quantization": None,
        "dtype": "float32",
    }


def test_the_end_tokens_are_those_of_the_model_and_of_its_tokenizer(folder: Path) -> None:
    """Ids outside of the vocabulary are left out, because no token has them."""
    config = EngineConfig(model_dir=folder, dtype="float32")
    delete_files("generation_config.json")(folder)
    config_with(eos_token_id=[0, -1, 99_999])(folder)
    assert preflight(config, memory_limit_bytes=4 * GIB)["eos_token_ids"] == [0, 2]
    with_file("tokenizer_config.json", b'{"eos_token": "<|endoftext|>"}')(folder)
    assert preflight(config, memory_limit_bytes=4 * GIB)["eos_token_ids"] == [0]


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_byte_order_mark_is_passed_over(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert preflight(EngineConfig(model_dir=folder), memory_limit_bytes=4 * GIB)["ok"]


def test_only_tensors_that_are_loaded_count_as_memory(folder: Path) -> None:
    """A head beside tied embeddings, parts of other models, and buffers stay in the file."""
    config = EngineConfig(model_dir=folder, dtype="float32")
    before = preflight(config, memory_limit_bytes=4 * GIB)["weights_bytes"]
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["vision_tower.proj.weight"] = torch.zeros(100, 100)
    tensors["model.layers.0.self_attn.masked_bias"] = torch.zeros(1, dtype=torch.int64)
    tensors["model.layers.0.self_attn.k_zero_point"] = torch.zeros(1, dtype=torch.int8)
    save_file(tensors, folder / "model.safetensors")
    assert preflight(config, memory_limit_bytes=4 * GIB)["weights_bytes"] == before


def test_the_verdict_has_the_number_types_of_weights(model_dir: Path, folder: Path) -> None:
    """Whether a GPU computes bfloat16 is not known before an engine runs on it."""
    quantized = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    config_with(quantization_config=quantized)(folder)
    verdicts = [
        preflight(config, accelerator_memory_bytes=GIB)
        for config in (
            EngineConfig(model_dir=model_dir, dtype="float16", quantization="int8"),
            EngineConfig(model_dir=model_dir, device="cuda"),
            EngineConfig(model_dir=folder, device="cuda", dtype="bfloat16"),
        )
    ]
    found = [(verdict["dtype"], verdict["quantization"]) for verdict in verdicts]
    assert found == [("float16", "int8"), (None, None), ("bfloat16", "fp8")]


def test_accelerators_of_unknown_memory_fit(model_dir: Path) -> None:
    verdict = preflight(EngineConfig(model_dir=model_dir, device="cuda"), memory_limit_bytes=MIB)
    assert verdict["ok"]
    assert verdict["kv_bytes_per_token"] == 2 * 4 * 4 * 32 * 2
    unknown = ("accelerator_memory_bytes", "kv_capacity_tokens", "max_num_seqs")
    assert [verdict[name] for name in unknown] == [None] * 3


def test_the_batch_limits_follow_the_accelerators_memory(model_dir: Path) -> None:
    """vLLM's defaults where there is memory for them."""
    config = EngineConfig(model_dir=model_dir, device="cuda")
    found = []
    for memory in (80 * GIB, 24 * GIB, GIB // 4):
        verdict = preflight(config, accelerator_memory_bytes=memory)
        assert verdict["accelerator_memory_bytes"] == memory
        found.append((verdict["max_num_seqs"], verdict["max_num_batched_tokens"]))
    assert found == [(1024, 8192), (256, 2048), (64, 512)]


LARGER, MORE = "take accelerators with at least ", "request more of them in spec.resources.limits"
QUANTIZED = "set spec.engine.quantization.method"


@pytest.mark.parametrize(
    ("changes", "memory", "reason", "advice"),
    [
        ({}, 64 * MIB, "MemoryTooSmall", (LARGER, MORE, QUANTIZED)),
        ({"quantization": "int8"}, 50 * MIB, "MemoryTooSmall", (LARGER, MORE)),
        ({"max_num_batched_tokens": 200_000}, GIB, "MemoryTooSmall", (LARGER,)),
        ({"kv_cache_memory_bytes": 8 * GIB}, 4 * GIB, "MemoryTooSmall", ("8192 MiB of KV cache",)),
        ({"tensor_parallel_size": 2}, 32 * MIB, "MemoryTooSmall", (LARGER, MORE)),
    ],
)  # fmt: skip
def test_a_model_that_no_accelerator_holds_is_rejected_with_advice(
    model_dir: Path, changes: dict[str, Any], memory: int, reason: str, advice: tuple[str, ...]
) -> None:
    config = EngineConfig(model_dir=model_dir, device="cuda", **changes)
    verdict = preflight(config, memory_limit_bytes=64 * GIB, accelerator_memory_bytes=memory)
    assert (verdict["ok"], verdict["reason"]) == (False, reason)
    for part in advice:
        assert part in verdict["message"]
    assert "limits.memory" not in verdict["message"]
    assert (QUANTIZED in verdict["message"]) == ("quantization" not in changes)


def test_an_accelerator_without_room_for_one_request_is_rejected(folder: Path) -> None:
    """The KV cache of such a request has 160 MiB."""
    config_with(max_position_embeddings=81920)(folder)
    config = EngineConfig(model_dir=folder, device="cuda")
    verdict = preflight(config, accelerator_memory_bytes=160 * MIB)
    assert verdict["reason"] == "KVCacheTooSmall"
    for advice in ("MiB more memory each", MORE, QUANTIZED, "spec.engine.maxModelLen to at most"):
        assert advice in verdict["message"]
    assert "limits.memory" not in verdict["message"]


def test_a_model_is_split_over_accelerators(model_dir: Path) -> None:
    """Ranks share weights and cache, so each needs less memory."""
    config = EngineConfig(model_dir=model_dir, device="cuda")
    split = replace(config, tensor_parallel_size=2)
    whole, half = (preflight(each, accelerator_memory_bytes=4 * GIB) for each in (config, split))
    assert half["weights_bytes"] < whole["weights_bytes"]
    assert half["kv_bytes_per_token"] * 2 == whole["kv_bytes_per_token"]


def run(*args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "preflight", *args],
        capture_output=True, text=True, check=False, env=os.environ | env,
    )  # fmt: skip


def test_the_command_writes_its_verdict_to_stdout_and_the_termination_log(
    model_dir: Path, tmp_path: Path
) -> None:
    log = tmp_path / "termination-log"
    done = run(
        model_dir, "--termination-log", log, "--max-model-len", "512",
        PENSTOCK_MEMORY_LIMIT_BYTES=str(2 * GIB),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(log.read_text())
    assert json.loads(done.stdout)["max_model_len"] == 512


def test_the_command_exits_with_1_on_an_error(model_dir: Path, tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    done = run(model_dir, "--termination-log", log, PENSTOCK_MEMORY_LIMIT_BYTES=str(64 * MIB))
    assert done.returncode == 1
    assert json.loads(log.read_text())["reason"] == "MemoryTooSmall"
    accelerator = ("--device", "cuda", "--accelerator-memory-bytes", str(64 * MIB))
    assert json.loads(run(model_dir, *accelerator).stdout)["reason"] == "MemoryTooSmall"
    flag = run(model_dir, "--memory-limit-bytes", str(64 * MIB))
    assert json.loads(flag.stdout)["reason"] == "MemoryTooSmall"


def test_preflight_imports_neither_torch_nor_transformers(model_dir: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from penstock_engine.config import EngineConfig; "
        "from penstock_engine.preflight import preflight; "
        f"assert preflight(EngineConfig(model_dir=Path({str(model_dir)!r})), "
        f"memory_limit_bytes={4 * GIB})['ok']; "
        f"assert preflight(EngineConfig(model_dir=Path({str(model_dir)!r}), device='cuda'), "
        f"accelerator_memory_bytes={4 * GIB})['ok']; "
        "print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def write_draft_head(folder: Path, hidden_size: int, fc: tuple[int, int]) -> None:
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden_size, "vocab_size": 512,
        "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 512,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {"fc.weight": torch.zeros(fc)}
    parameters = draft_head_parameters(ModelConfig.load(folder), has_bias=False)
    for name, shape in checkpoint_tensors(ModelConfig.load(folder), parameters, ()).items():
        tensors.setdefault(name, torch.zeros(shape))
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("method", ["draft_model", "eagle"])
def test_a_draft_model_that_is_missing_is_named_by_its_path(
    model_dir: Path, tmp_path: Path, method: Any
) -> None:
    draft = str(tmp_path / "nowhere")
    speculation = SpeculationConfig(method=method, num_speculative_tokens=2, model=draft)
    config = EngineConfig(model_dir=model_dir, dtype="float32", speculative_config=speculation)
    verdict = preflight(config, memory_limit_bytes=2 * GIB)
    assert (verdict["ok"], verdict["reason"]) == (False, "BadDraftModel")
    assert f"({draft}): there is no model directory" in verdict["message"]
    assert "spec.engine.speculative.model.uri" in verdict["message"]


def test_a_draft_head_is_counted_and_must_fit_the_model(model_dir: Path, tmp_path: Path) -> None:
    """Its weights and cache are part of the sizes, and heads of other shapes are rejected."""
    hidden_size = json.loads((model_dir / "config.json").read_text())["hidden_size"]

    def verdict(name: str, hidden_size: int, fc: tuple[int, int]) -> dict[str, Any]:
        if not (tmp_path / name).exists():
            write_draft_head(tmp_path / name, hidden_size, fc)
        speculation = SpeculationConfig(
            method="eagle", num_speculative_tokens=2, model=str(tmp_path / name)
        )
        config = EngineConfig(model_dir=model_dir, dtype="float32", speculative_config=speculation)
        return preflight(config, memory_limit_bytes=2 * GIB)

    plain = preflight(
        EngineConfig(model_dir=model_dir, dtype="float32"), memory_limit_bytes=2 * GIB
    )
    fitting = verdict("fitting", hidden_size, (hidden_size, 2 * hidden_size))
    head = load_file(tmp_path / "fitting" / "model.safetensors")
    num_bytes = sum(tensor.nbytes for tensor in head.values())
    assert fitting["weights_bytes"] - plain["weights_bytes"] == num_bytes > 2 * hidden_size**2 * 4
    assert fitting["kv_bytes_per_token"] > plain["kv_bytes_per_token"]
    del head["layers.0.mlp.down_proj.weight"]
    save_file(head, tmp_path / "fitting" / "model.safetensors")
    incomplete = verdict("fitting", hidden_size, (hidden_size, 2 * hidden_size))
    assert (incomplete["ok"], incomplete["reason"]) == (False, "BadDraftModel")
    assert "asks for layers.0.mlp.down_proj.weight, which is not there" in incomplete["message"]
    for name, width, fc in (("wide", 2 * hidden_size, (4, 4)), ("other", hidden_size, (4, 4))):
        mismatch = verdict(name, width, fc)
        assert (mismatch["ok"], mismatch["reason"]) == (False, "DraftMismatch")


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"config.json": "{}"}, "Found"),
        ({"params.json": "{}"}, "Found"),  # of Mistral
        ({"model.gguf": ""}, "Found"),
        ({"config.json": "{", "params.json": "{}"}, "BadConfig"),
        ({"params.json": "\xff"}, "BadConfig"),
        ({"config.json": "[" * 100_000}, "BadConfig"),
        ({"config.json": "[]"}, "BadConfig"),
        ({"model.safetensors": ""}, "NotAModel"),
    ],
)
def test_the_configuration_of_a_model_for_another_program_is_found(
    tmp_path: Path, files: dict[str, str], reason: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    assert find_model(tmp_path, "files")["reason"] == reason
    assert find_model(tmp_path, "folder")["reason"] == "Found"
