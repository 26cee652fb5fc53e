"""The engine's memory plan of a shape on this device, from a checkpoint that has headers alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.gpu.context import Context
from benchmarks.gpu.shapes import config_of
from tokenizers import Tokenizer, models

from penstock_engine.machine.device import DeviceMemory, device_memory
from penstock_engine.memory.batch_limits import BatchLimits
from penstock_engine.memory.budget import MemoryBudget
from penstock_engine.memory.plan import MemoryPlan, plan_memory
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.parameters import checkpoint_tensors, model_parameters
from penstock_engine.options.config import EngineConfig

Counted = dict[str, int]


def make_plan(
    folder: Path, shape: str, context: Context
) -> tuple[EngineConfig, MemoryPlan, Counted]:
    """Plan with the engine's defaults; on the CPU with small limits. Also returns the bytes it counts."""
    write_empty_checkpoint(folder, config_of(shape, is_small=context.is_small))
    config = EngineConfig(model_dir=folder, dtype="bfloat16")
    if context.is_small:
        config = replace(
            config, num_gpu_blocks_override=64, max_num_seqs=2, max_num_batched_tokens=16,
            max_model_len=64,
        )  # fmt: skip
    memory = device_memory(context.device, utilization=config.memory_utilization)
    plan = plan_memory(config, device_name=context.device, memory=memory)
    return config, plan, counted_bytes(config, plan, memory)


def counted_bytes(config: EngineConfig, plan: MemoryPlan, memory: DeviceMemory) -> Counted:
    """Bytes that a plan counts for each use. total: all that it allows to be in use."""

    def free_bytes(one: EngineConfig) -> int:
        budget = MemoryBudget(
            config=one, model=plan.model, device_name=plan.device, memory=memory,
            limits=BatchLimits(plan.max_num_seqs, plan.max_num_batched_tokens),
            fixed_bytes=plan.weights_bytes, requested_kv_bytes=None, item_bytes=2,
        )  # fmt: skip
        return budget.free_bytes(plan.max_model_len)

    usable_bytes = memory.usable_bytes(config.memory_utilization)
    without_graphs = free_bytes(replace(config, enforce_eager=True))
    return {
        "counted_total_bytes": memory.used_bytes + usable_bytes,
        "counted_weights_bytes": plan.weights_bytes,
        "counted_kv_cache_bytes": plan.kv_capacity_tokens * plan.kv_bytes_per_token,
        "counted_graph_bytes": without_graphs - free_bytes(config),
        "counted_working_bytes": usable_bytes - plan.weights_bytes - without_graphs,
    }


def write_empty_checkpoint(folder: Path, raw: dict[str, Any]) -> None:
    """Write config.json, an empty tokenizer, and bfloat16 weights as a sparse file of their size."""
    (folder / "config.json").write_text(json.dumps(raw))
    Tokenizer(models.BPE()).save(str(folder / "tokenizer.json"))
    config = ModelConfig.parse(raw, {})
    entries: dict[str, Any] = {}
    end = 0
    for name, shape in checkpoint_tensors(config, model_parameters(config), ()):
        start, end = end, end + 2 * torch.Size(shape).numel()
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + end)
