"""The memory that the preflight asks for, of a pod and of its accelerators."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine_server.preflight.preflight_models import GIB, MIB, checked, config_with

from penstock_engine.options.config import EngineConfig


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_the_accelerator_in_the_message_is_the_smallest(model_dir: Path, num_ranks: int) -> None:
    config = EngineConfig(
        model_dir=model_dir, device="cuda", max_model_len=1024, tensor_parallel_size=num_ranks
    )
    message = checked(config, accelerator_memory_bytes=32 * MIB)["message"]
    advised_mib = int(message.rsplit("at least ", 1)[1].partition(" MiB")[0])
    assert checked(config, accelerator_memory_bytes=advised_mib * MIB)["ok"]
    assert not checked(config, accelerator_memory_bytes=(advised_mib - 1) * MIB)["ok"]


@pytest.mark.parametrize("memory", [64 * MIB, 700 * MIB])
def test_the_memory_in_the_message_is_the_minimum(model_dir: Path, memory: int) -> None:
    config = EngineConfig(model_dir=model_dir, dtype="float32", max_model_len=1024)
    message = checked(config, memory_limit_bytes=memory)["message"]
    advised_mib = int(message.rsplit("at least ", 1)[1].removesuffix("Mi"))
    assert checked(config, memory_limit_bytes=advised_mib * MIB)["ok"]
    assert not checked(config, memory_limit_bytes=(advised_mib - 1) * MIB)["ok"]


def test_accelerators_of_unknown_memory_fit(model_dir: Path) -> None:
    verdict = checked(EngineConfig(model_dir=model_dir, device="cuda"), memory_limit_bytes=MIB)
    assert verdict["ok"]
    assert verdict["kv_bytes_per_token"] == 2 * 4 * 4 * 32 * 2
    unknown = ("accelerator_memory_bytes", "kv_capacity_tokens", "max_num_seqs")
    assert [verdict[name] for name in unknown] == [None] * 3


def test_the_batch_limits_follow_the_accelerators_memory(model_dir: Path) -> None:
    """vLLM's defaults where there is memory for them."""
    config = EngineConfig(model_dir=model_dir, device="cuda")
    found = []
    for memory in (80 * GIB, 24 * GIB, GIB // 4):
        verdict = checked(config, accelerator_memory_bytes=memory)
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
    verdict = checked(config, memory_limit_bytes=64 * GIB, accelerator_memory_bytes=memory)
    assert (verdict["ok"], verdict["reason"]) == (False, reason)
    for part in advice:
        assert part in verdict["message"]
    assert "limits.memory" not in verdict["message"]
    assert (QUANTIZED in verdict["message"]) == ("quantization" not in changes)


def test_an_accelerator_without_room_for_one_request_is_rejected(folder: Path) -> None:
    """The KV cache of such a request has 160 MiB. CUDA graphs and partial sums take some 80 MiB."""
    config_with(max_position_embeddings=81920)(folder)
    config = EngineConfig(model_dir=folder, device="cuda")
    verdict = checked(config, accelerator_memory_bytes=240 * MIB)
    assert verdict["reason"] == "KVCacheTooSmall"
    for advice in ("MiB more memory each", MORE, QUANTIZED, "spec.engine.maxModelLen to at most"):
        assert advice in verdict["message"]
    assert "limits.memory" not in verdict["message"]


def test_a_model_is_split_over_accelerators(model_dir: Path) -> None:
    """Ranks share weights and cache, so each needs less memory."""
    config = EngineConfig(model_dir=model_dir, device="cuda")
    split = replace(config, tensor_parallel_size=2)
    whole, half = (checked(each, accelerator_memory_bytes=4 * GIB) for each in (config, split))
    assert half["weights_bytes"] < whole["weights_bytes"]
    assert half["kv_bytes_per_token"] * 2 == whole["kv_bytes_per_token"]
