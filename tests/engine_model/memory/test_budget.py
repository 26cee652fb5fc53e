"""Tests of the estimated memory of activations and of recorded decode steps."""

from pathlib import Path

from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.machine.device import DeviceMemory
from penstock_engine.memory.batch_limits import BatchLimits
from penstock_engine.memory.budget import MemoryBudget, activation_bytes
from penstock_engine.models.config import ModelConfig
from penstock_engine.options.config import EngineConfig

MIB = 2**20


def test_activations_grow_with_the_batch() -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 768, "attention_size": 1024}
    small = activation_bytes(num_tokens=512, **sizes)
    assert small == 12 * MIB
    assert activation_bytes(num_tokens=1024, **sizes) == 2 * small


def test_attention_counts_if_it_has_more_numbers_than_the_rest() -> None:
    sizes = {"num_tokens": 512, "hidden_size": 256, "intermediate_size": 768}
    assert activation_bytes(attention_size=21 * 256, **sizes) == 12 * MIB
    assert activation_bytes(attention_size=29 * 256, **sizes) == 16 * MIB


def test_a_draft_model_records_steps_as_the_model_does_and_a_head_does_not(qwen3_dir: Path) -> None:
    model = ModelConfig.load(qwen3_dir)

    def free_bytes(method: str, draft: ModelConfig | None, *, is_eager: bool = False) -> int:
        drafts = SpeculationConfig(method=method, num_speculative_tokens=2, model="drafts")
        config = EngineConfig(
            model_dir=qwen3_dir, speculative_config=drafts, enforce_eager=is_eager
        )
        return MemoryBudget(
            config=config, model=model, device_name="cuda", memory=DeviceMemory(2**32),
            limits=BatchLimits(8, 100), fixed_bytes=0, requested_kv_bytes=None, item_bytes=2,
            draft=draft,
        ).free_bytes(64)  # fmt: skip

    without = free_bytes("draft_model", None)
    graphs = free_bytes("draft_model", None, is_eager=True) - without
    assert graphs > 0
    assert without - free_bytes("draft_model", model) == graphs
    assert free_bytes("draft_model", model, is_eager=True) == without + graphs
    assert free_bytes("eagle", model) == without
