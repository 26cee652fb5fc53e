"""The estimate of a step's work, against torch's own count and by hand."""

from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.step_cost import StepCostModel, num_attended


def chunk(start: int, end: int, *, is_sampled: bool = True) -> ScheduledSequence:
    tokens = (0,) * (end - start)
    return ScheduledSequence("", start, tokens, (), is_sampled, SamplingParams(max_tokens=1), [], 1)


@pytest.mark.parametrize(
    "family",
    ["llama", "qwen2", "qwen3", "mistral", "gemma", "gemma3", "phi", "mixtral", "qwen3-moe"],
)
def test_a_token_takes_what_torch_counts(
    greedy_equality: ModuleType, family: str, tmp_path: Path
) -> None:
    """Cost of a decode after 100 tokens, which is beyond all sliding windows."""
    made = greedy_equality.FAMILIES[family]
    made.make(tmp_path)
    model = made.load(tmp_path, "float32")
    model.set_attn_implementation("eager")
    model.config._experts_implementation = "eager"  # what its fused product takes is not counted
    with torch.no_grad():
        before = model(torch.arange(100)[None], use_cache=True)
        with FlopCounterMode(display=False) as counter:
            model(torch.tensor([[7]]), past_key_values=before.past_key_values, use_cache=True)
    estimated = StepCostModel(ModelConfig.load(tmp_path), 0, 0).estimate([chunk(100, 101)]).flops
    assert estimated == pytest.approx(counter.get_total_flops(), rel=0.002)


@pytest.mark.parametrize("window_tokens", [None, 1, 5, 16, 100])
@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 20), (3, 17), (16, 17), (40, 60)])
def test_what_is_seen_is_counted(start: int, end: int, window_tokens: int | None) -> None:
    one_by_one = [
        min(position + 1, window_tokens or position + 1) for position in range(start, end)
    ]
    assert num_attended(start, end, window_tokens) == sum(one_by_one)


def test_bytes_are_those_of_weights_and_keys_and_values(
    greedy_equality: ModuleType, tmp_path: Path
) -> None:
    """Weights once a step however many tokens; of the embedding's table only the head is read, and
    only where a token is drawn."""
    greedy_equality.FAMILIES["llama"].make(tmp_path)
    config = ModelConfig.load(tmp_path)
    table = config.vocab_size * config.hidden_size
    products = 3 * config.hidden_size * (4 * 64 + 3 * 160)
    work = StepCostModel(config, weights_bytes=4 * (products + 2 * table), kv_bytes_per_token=90)
    prefill, decode = (
        work.estimate([chunk(0, 50, is_sampled=False)]),
        work.estimate([chunk(50, 51)] * 2),
    )
    assert (prefill.read_bytes, prefill.written_bytes) == (4 * products + 50 * 90, 50 * 90)
    assert decode.read_bytes == 4 * (products + table) + 2 * 51 * 90
    assert decode.written_bytes == 2 * 90
    halves = StepCostModel(config, 4 * (products + 2 * table), 90, num_ranks=2)
    assert halves.estimate([chunk(50, 51)] * 2).flops == decode.flops / 2
    assert work.estimate([]).flops == 0


def test_a_few_tokens_meet_a_few_experts(greedy_equality: ModuleType, tmp_path: Path) -> None:
    """A token reads two of five experts; a thousand tokens read all."""
    greedy_equality.FAMILIES["mixtral"].make(tmp_path)
    config = ModelConfig.load(tmp_path)
    one_expert = 3 * config.hidden_size * config.intermediate_size * config.num_layers
    work = StepCostModel(config, weights_bytes=10**6, kv_bytes_per_token=0)
    per_parameter = 10**6 / (5 * one_expert + 3 * 64 * (2 * 64 + 2 * 32 + 5) + 2 * 512 * 64)
    few, many = (
        work.estimate([chunk(0, count, is_sampled=False)]).read_bytes for count in (1, 1000)
    )
    assert many - few == pytest.approx(3 * one_expert * per_parameter)
