"""The size of the KV cache, computed from the config, the model and the memory limit."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock_engine.machine.device import DeviceMemory
from penstock_engine.memory.plan import plan_memory
from penstock_engine.options.config import EngineConfig
from penstock_engine.options.flag_values import FIT

MIB = 2**20
GIB = 2**30
# Keys and values, 4 layers, 4 heads of 32 numbers, 4 bytes each.
KV_TOKEN_BYTES = 2 * 4 * 4 * 32 * 4


def test_the_cache_fills_the_memory_that_is_left(model_dir: Path) -> None:
    config = EngineConfig(
        model_dir=model_dir, dtype="float32", max_num_seqs=1000, gpu_memory_utilization=0.9
    )
    small, large = (
        plan_memory(config, device_name="cpu", memory=DeviceMemory(memory))
        for memory in (2 * GIB, 3 * GIB)
    )
    grown_bytes = (large.num_blocks - small.num_blocks) * 16 * small.kv_bytes_per_token
    assert abs(grown_bytes - 0.9 * GIB) < MIB
    half = plan_memory(
        replace(config, dtype="bfloat16"), device_name="cpu", memory=DeviceMemory(2 * GIB)
    )
    assert half.kv_bytes_per_token * 2 == small.kv_bytes_per_token


@pytest.mark.parametrize(
    ("flags", "memory", "expected_bytes"),
    [
        ({}, 4 * GIB, GIB),
        ({}, 64 * GIB, 4 * GIB),
        ({"max_num_seqs": 2}, 64 * GIB, 2 * 4096 * KV_TOKEN_BYTES),
        ({"kv_cache_memory_bytes": 2 * GIB}, 4 * GIB, 2 * GIB),
        ({"num_gpu_blocks_override": 2**15}, 4 * GIB, 2**15 * 16 * KV_TOKEN_BYTES),
    ],
    ids=["quarter", "4-gib", "all-requests", "bytes", "blocks"],
)
def test_the_cache_leaves_memory_to_other_programs(
    model_dir: Path, flags: dict[str, Any], memory: int, expected_bytes: int
) -> None:
    """The default size is at most a quarter of the memory, 4 GiB, and what all requests can use."""
    config = EngineConfig(model_dir=model_dir, dtype="float32", **{"max_num_seqs": 1000, **flags})
    memory_plan = plan_memory(config, device_name="cpu", memory=DeviceMemory(memory))
    assert memory_plan.kv_capacity_tokens * memory_plan.kv_bytes_per_token == expected_bytes


def test_the_cache_holds_at_least_one_longest_request(model_dir: Path, tmp_path: Path) -> None:
    """The 320 MiB of such a request are more than a quarter of the memory."""
    folder = tmp_path / "model"
    shutil.copytree(model_dir, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 81920}))
    config = EngineConfig(model_dir=folder, dtype="float32")
    memory_plan = plan_memory(config, device_name="cpu", memory=DeviceMemory(int(1.2 * GIB)))
    assert memory_plan.kv_capacity_tokens == 81920


@pytest.mark.parametrize("utilization", [0.5, 0.9])
def test_memory_utilization_sets_the_size_of_the_cache(model_dir: Path, utilization: float) -> None:
    config = EngineConfig(
        model_dir=model_dir,
        dtype="float32",
        max_num_seqs=10_000,
        gpu_memory_utilization=utilization,
    )
    memory_plan = plan_memory(config, device_name="cpu", memory=DeviceMemory(16 * GIB))
    assert (
        memory_plan.kv_capacity_tokens * memory_plan.kv_bytes_per_token
        > (utilization * 16 - 2) * GIB
    )


@pytest.mark.parametrize(
    ("dtype", "kv_cache_dtype", "factor"),
    [
        ("float32", "int8", 128 / 36),
        ("float32", "fp8", 128 / 36),
        ("bfloat16", "fp8_e4m3", 64 / 36),
    ],
)
def test_a_quantized_cache_holds_more_tokens(
    model_dir: Path, dtype: Any, kv_cache_dtype: Any, factor: float
) -> None:
    """A scale of 4 bytes per 32 numbers of a head; with heads of 128, the factor is 3.9 or 1.9."""
    config = EngineConfig(
        model_dir=model_dir, dtype=dtype, max_num_seqs=1000, kv_cache_memory_bytes=64 * MIB
    )
    full, quantized = (
        plan_memory(c, device_name="cpu", memory=DeviceMemory(4 * GIB))
        for c in (config, replace(config, kv_cache_dtype=kv_cache_dtype))
    )
    assert full.kv_bytes_per_token == pytest.approx(quantized.kv_bytes_per_token * factor)
    assert quantized.kv_capacity_tokens / full.kv_capacity_tokens == pytest.approx(factor, rel=0.01)
    assert full.kv_dtype == dtype
    assert quantized.kv_dtype == ("int8" if kv_cache_dtype == "int8" else "float8_e4m3fn")


def test_quantized_weights_leave_room_for_more_tokens(model_dir: Path) -> None:
    config = EngineConfig(
        model_dir=model_dir, dtype="float32", max_num_seqs=1000, gpu_memory_utilization=0.9
    )
    full, int8, int4 = (
        plan_memory(
            replace(config, quantization=q), device_name="cpu", memory=DeviceMemory(2 * GIB)
        )
        for q in (None, "int8", "int4")
    )
    assert int4.weights_bytes < int8.weights_bytes < full.weights_bytes
    assert int4.kv_capacity_tokens > int8.kv_capacity_tokens > full.kv_capacity_tokens
    saved_bytes = full.weights_bytes - int8.weights_bytes
    grown_bytes = (int8.num_blocks - full.num_blocks) * 16 * full.kv_bytes_per_token
    assert abs(grown_bytes - saved_bytes) < MIB


@pytest.mark.parametrize(("num_blocks", "length"), [(1, 16), (9, 144), (10**6, None)])
def test_a_fitted_context_has_the_length_of_the_cache(
    model_dir: Path, num_blocks: int, length: int | None
) -> None:
    """The context is as long as the cache, but never longer than the model supports."""
    config = EngineConfig(
        model_dir=model_dir, max_model_len=FIT, num_gpu_blocks_override=num_blocks, dtype="float32"
    )
    memory_plan = plan_memory(config, device_name="cpu", memory=DeviceMemory(1 << 50))
    assert memory_plan.max_model_len == (length or memory_plan.model.max_model_len)
    assert memory_plan.kv_capacity_tokens >= memory_plan.max_model_len
