"""A kind of attention that no family has works from its description and module: nothing else knows it.

Layer 1 of 3 has it. `model_dir` makes the edits of "An attention kind" in CONTRIBUTING.md: in attention.py,
registry.py and attention_modules.py.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine_model.models.latent_attention import LatentAttention, LatentModule
from tokenizers import Tokenizer, models

from penstock_engine.checkpoints.loading import load_weights
from penstock_engine.checkpoints.weights import read_headers, shapes_and_bytes
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import BlockCopies, ScheduledSequence
from penstock_engine.execution.graph_sizes import LAUNCH_BYTES
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.kernels.attention_sizes import partial_sums_bytes
from penstock_engine.layers.linear import Linear
from penstock_engine.lora.adapters import Adapters, LoraLinear, targets_of
from penstock_engine.machine.device import DeviceMemory
from penstock_engine.memory.batch_limits import BatchLimits
from penstock_engine.memory.budget import MemoryBudget
from penstock_engine.memory.plan import plan_memory
from penstock_engine.models import layer as layer_module
from penstock_engine.models.attention import (
    AttentionConfig,
    KVCacheSpec,
    parse_attention,
)
from penstock_engine.models.attention_modules import ATTENTION
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM
from penstock_engine.models.parameters import checkpoint_tensors, model_parameters
from penstock_engine.models.registry import FAMILIES, Family
from penstock_engine.models.shard import Layout, Shard, make_shards, unsharded
from penstock_engine.models.step_cost import StepCostModel
from penstock_engine.options.config import EngineConfig
from penstock_engine.quantization.rounding import RoundToNearest

BLOCK_SIZE = 4
CONFIG = {
    "architectures": ["LatentForCausalLM"], "vocab_size": 64, "hidden_size": 32,
    "layer_types": ["full_attention", "latent_attention", "full_attention"],
    "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
}  # fmt: skip
# Numbers of a token: keys and values of two heads of 8 in two layers, and a vector of 12.
NUMBERS = 2 * (2 * 2 * 8) + 12
# Scales of a token in a quantized cache: one for each of these vectors.
SCALES = 2 * (2 * 2) + 1


def parse(raw: Mapping[str, Any], family: Family) -> Mapping[Any, AttentionConfig]:
    return {**parse_attention(raw, family), "latent_attention": LatentAttention(4, 32)}


@pytest.fixture
def model_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(layer_module, "parse_attention", parse)
    monkeypatch.setitem(FAMILIES, "LatentForCausalLM", Family())  # type: ignore[arg-type]
    monkeypatch.setitem(ATTENTION, LatentAttention, LatentModule)  # type: ignore[arg-type]
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    Tokenizer(models.WordLevel({"a": 0}, "a")).save(str(tmp_path / "tokenizer.json"))
    config = ModelConfig.load(tmp_path)
    shapes = dict(checkpoint_tensors(config, model_parameters(config), ()))
    generator = torch.Generator().manual_seed(7)
    tensors = {name: torch.randn(shape, generator=generator) / 4 for name, shape in shapes.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def test_ranks_have_the_heads_of_each_layer_and_all_of_its_single_vector(model_dir: Path) -> None:
    config = ModelConfig.load(model_dir)
    assert unsharded(config).kv_specs == [
        KVCacheSpec(2, 2, 8), KVCacheSpec(1, 1, 12), KVCacheSpec(2, 2, 8)
    ]  # fmt: skip
    for index, shard in enumerate(make_shards(config, Layout(2))):
        assert shard.kv_specs == [
            KVCacheSpec(2, 1, 8), KVCacheSpec(1, 1, 12), KVCacheSpec(2, 1, 8)
        ]  # fmt: skip
        assert rows(shard, "q_b_proj") == range(20 * index, 20 * index + 20)
        assert rows(shard, "kv_a_proj") == range(12)
        assert rows(shard, "kv_b_proj") == range(24 * index, 24 * index + 24)
        assert rows(shard, "o_proj") == range(12 * index, 12 * index + 12)
    *_, stage = make_shards(config, Layout(pipeline=3))
    assert stage.kv_specs == [KVCacheSpec(2, 2, 8)]


def rows(shard: Shard, product: str) -> range:
    part = shard.tensor_shard(f"model.layers.1.self_attn.{product}.weight")
    assert part is not None
    return part.ranges[0].local


@pytest.mark.parametrize(
    ("kv_cache_dtype", "token_bytes"), [("auto", 4 * NUMBERS), ("int8", NUMBERS + 4 * SCALES)]
)
def test_memory_is_planned_for_the_sum_of_the_layers(
    model_dir: Path, kv_cache_dtype: Any, token_bytes: int
) -> None:
    plan = plan_memory(
        EngineConfig(
            model_dir=model_dir, dtype="float32", block_size=BLOCK_SIZE,
            kv_cache_dtype=kv_cache_dtype, kv_cache_memory_bytes=100 * BLOCK_SIZE * token_bytes + 9,
        ),
        device_name="cpu", memory=DeviceMemory(4 * 2**30),
    )  # fmt: skip
    assert (plan.kv_bytes_per_token, plan.num_blocks) == (token_bytes, 100)


def test_each_layer_rotates_the_part_of_a_head_that_its_attention_names(model_dir: Path) -> None:
    config = ModelConfig.load(model_dir)
    assert [rope.rotary_dim for rope in config.ropes] == [8, 4, 8]
    assert config.max_model_len == 64
    layers = [layer.attention for layer in config.layers]
    assert [layers[0].scale, layers[2].scale] == [8**-0.5] * 2  # type: ignore[attr-defined]


def test_cost_and_adapters_follow(model_dir: Path) -> None:
    config = ModelConfig.load(model_dir)
    attention = "model.layers.1.self_attn"
    targets = targets_of(config)
    assert {name: sizes for name, sizes in targets.items() if name.startswith(attention)} == {
        f"{attention}.q_b_proj": (40, 32),
        f"{attention}.kv_a_proj": (12, 32),
        f"{attention}.o_proj": (32, 24),
    }
    assert config.num_adapter_parameters(5) == 5 * sum(map(sum, targets.values()))
    cost = StepCostModel(config, 0, 4 * NUMBERS)
    one, two = (cost.estimate([sequence(start, start + 1)]) for start in (10, 11))
    assert two.flops - one.flops == 2 * 4 * 4 * 8 + 2 * 4 * (12 + 8)
    assert two.read_bytes - one.read_bytes == pytest.approx(4 * NUMBERS)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_memory_is_planned_for_wide_tensors_and_for_launches(model_dir: Path, device: str) -> None:
    def free_bytes(attention: LatentAttention) -> int:
        config = ModelConfig.load(model_dir)
        layers = (replace(config.layers[1], attention=attention), config.layers[0])
        return MemoryBudget(
            config=EngineConfig(model_dir=model_dir, block_size=BLOCK_SIZE),
            model=replace(config, layers=layers), device_name=device, limits=BatchLimits(8, 100),
            memory=DeviceMemory(4 * 2**30), fixed_bytes=0, requested_kv_bytes=None, item_bytes=4,
        ).free_bytes(64)  # fmt: skip

    class ManyLaunches(LatentAttention):
        num_launches = 10

    few, many = LatentAttention(4, 32), LatentAttention(400, 32)
    assert (few.num_activations, many.num_activations) == (156, 14_412)
    num_tokens = 100 if device == "cpu" else 100 + 8
    more = 3 * 32 + 14_412 - (12 * 32 + 4 * 48)
    expected = 4 * num_tokens * more
    if device == "cuda":  # partial sums of the tiles of all steps, and of graphs
        for fewer_rows in (128, 16):
            fewer, most = (
                partial_sums_bytes(block_rows=rows, num_kv_heads=1, head_dim=12)
                for rows in (fewer_rows, 512)
            )
            expected += most - fewer
    assert free_bytes(few) - free_bytes(many) == expected
    num_graphs = 0 if device == "cpu" else 4
    assert free_bytes(few) - free_bytes(ManyLaunches(4, 32)) == num_graphs * LAUNCH_BYTES


@pytest.mark.parametrize("is_checkpoint_quantized", [False, True])
def test_weights_that_are_read_directly_are_plain_tensors(
    model_dir: Path, is_checkpoint_quantized: bool
) -> None:
    config = ModelConfig.load(model_dir)
    scheme = config.scheme("int8", "float32")
    assert isinstance(scheme, RoundToNearest)
    if is_checkpoint_quantized:
        scheme = replace(scheme, products={"q_b_proj", "kv_b_proj"})
    model = DecoderForCausalLM(config, max_positions=64, dtype=torch.float32, device="cpu")
    dense = config.dense_modules
    load_weights(model, model_dir, {}, torch.float32, "cpu", scheme, dense)
    attention = model.model.layers[1].self_attn
    exact = load_file(model_dir / "model.safetensors")["model.layers.1.self_attn.kv_b_proj.weight"]
    assert not isinstance(attention.q_b_proj.weight, torch.Tensor)
    assert torch.equal(attention.kv_b_proj.weight, exact) != is_checkpoint_quantized
    torch.testing.assert_close(attention.kv_b_proj.weight, exact, atol=0.01, rtol=0)
    headers = read_headers(model_dir / "model.safetensors")
    _, num_bytes = shapes_and_bytes(headers, scheme, 4, dense)
    assert num_bytes["model.layers.1.self_attn.kv_b_proj.weight"] == 4 * exact.numel()
    Adapters(model, unsharded(config), "cpu", 1, max_rank=8)
    assert isinstance(attention.q_b_proj, LoraLinear)
    assert isinstance(attention.kv_b_proj, Linear)


def test_the_model_computes_a_prompt_in_parts_and_after_its_blocks_moved(model_dir: Path) -> None:
    config = RunnerConfig(
        model_dir=model_dir, device="cpu", dtype="float32", num_blocks=16, block_size=BLOCK_SIZE,
        max_num_seqs=2, max_num_batched_tokens=32, max_model_len=64, num_host_blocks=2,
    )  # fmt: skip
    whole = forward(PagedModel.load(config), [sequence(0, 13)])
    model = PagedModel.load(config)
    parts = [forward(model, [sequence(0, 6)]), forward(model, [sequence(6, 7)])]
    # The first two blocks move by way of the host, to where the others expect them.
    model.copy_blocks(BlockCopies(saves=((0, 1),), restores=((1, 9),), forks=((1, 8),)))
    moved = (9, 8, 2, 3)
    parts += [forward(model, [sequence(7, 8, moved)]), forward(model, [sequence(8, 13, moved)])]
    torch.testing.assert_close(torch.cat(parts), whole)


def test_a_nan_reaches_only_tokens_that_attend_to_it(model_dir: Path) -> None:
    config = RunnerConfig(
        model_dir=model_dir, device="cpu", dtype="float32", num_blocks=16, block_size=BLOCK_SIZE,
        max_num_seqs=2, max_num_batched_tokens=32, max_model_len=64,
    )  # fmt: skip
    model = PagedModel.load(config)
    model.decoder.model.embed_tokens.weight[5 * 10 % 64] = torch.nan
    model.forward([sequence(0, 13)])
    hidden = model.forward([sequence(0, 13)])
    assert hidden.isnan().any(1).tolist() == [False] * 10 + [True] * 3


def sequence(start: int, end: int, blocks: Sequence[int] = (0, 1, 2, 3)) -> ScheduledSequence:
    tokens = tuple(5 * position % 64 for position in range(start, end))
    sampling = SamplingParams(max_tokens=1)
    return ScheduledSequence("", start, tokens, tuple(blocks), True, sampling, (), 0)


@torch.inference_mode()
def forward(model: PagedModel, sequences: list[ScheduledSequence]) -> torch.Tensor:
    return model.logits(model.forward(sequences)).clone()
