"""The verdict of the preflight on a model that can be served: sizes, end tokens, number types."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.engine_server.preflight.preflight_models import GIB, config_with, delete_files, with_file

from penstock_engine.memory.preflight import preflight
from penstock_engine.options.config import EngineConfig


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
