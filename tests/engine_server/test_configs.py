"""Each flag and each part of the memory plan reaches the scheduler and the runner."""

from pathlib import Path
from typing import Any

import pytest

from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.kv_events.config import KVEventsConfig
from penstock_engine.memory.plan import MemoryPlan
from penstock_engine.models.shard import Layout
from penstock_engine.options.config import EngineConfig
from penstock_engine.server.configs import runner_config, scheduler_config

MODEL: Any = None  # neither configuration depends on it
PLAN = MemoryPlan(
    model=MODEL, device="cpu", dtype="bfloat16", max_model_len=100, num_blocks=7, block_size=32,
    weights_bytes=1, kv_bytes_per_token=2, num_host_blocks=3, kv_dtype="int8", window_tokens=50,
    max_num_seqs=4, max_num_batched_tokens=64,
)  # fmt: skip
SIZES = {
    "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 100, "block_size": 32,
    "num_blocks": 7, "num_host_blocks": 3,
}  # fmt: skip
EAGLE = SpeculationConfig(method="eagle", num_speculative_tokens=2, model="head")


@pytest.mark.parametrize("enable_lora", [False, True])
def test_a_scheduler_has_the_sizes_of_the_plan_and_the_policies_of_the_flags(
    enable_lora: bool,
) -> None:
    config = EngineConfig(
        model_dir=Path("model"), max_num_seqs=9, max_model_len=999, block_size=8, dtype="float32",
        enable_prefix_caching=False, max_num_queued_reqs=11, scheduling_policy="priority",
        speculative_config=EAGLE, enable_lora=enable_lora, max_loras=5,
        kv_events_config=KVEventsConfig(enable_kv_cache_events=enable_lora),
    )  # fmt: skip
    assert scheduler_config(config, PLAN) == SchedulerConfig(
        **SIZES, prefix_caching=False, max_num_queued_seqs=11, policy="priority", speculation=EAGLE,
        max_adapters=5 if enable_lora else 0, adapter_max_wait_s=1.0, window_tokens=50,
        block_events=enable_lora,
    )  # fmt: skip


def test_a_runner_has_the_sizes_of_the_plan_and_the_flags_of_the_model() -> None:
    config = EngineConfig(
        model_dir=Path("model"), max_num_seqs=9, max_model_len=999, block_size=8, dtype="float32",
        quantization="int4", device="auto", speculative_config=EAGLE, enable_lora=True, max_loras=5,
        max_lora_rank=32, tensor_parallel_size=2, pipeline_parallel_size=3, enable_expert_parallel=True,
        async_scheduling=False, enforce_eager=True,
    )  # fmt: skip
    assert runner_config(config, PLAN) == RunnerConfig(
        **SIZES, model_dir=Path("model"), device="cpu", dtype="bfloat16", quantization="int4",
        kv_dtype="int8", max_adapters=5, max_lora_rank=32, draft_model_dir=Path("head"), draft_method="eagle",
        layout=Layout(2, 3, True), async_scheduling=False, enforce_eager=True,
    )  # fmt: skip


def test_without_speculation_a_runner_loads_no_drafts() -> None:
    config = runner_config(EngineConfig(model_dir=Path("model")), PLAN)
    assert (config.draft_model_dir, config.draft_method) == (None, "draft_model")
