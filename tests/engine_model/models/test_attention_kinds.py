"""A kind of attention that no family has works from its description and module: nothing else knows it.

Layer 1 of 3 keeps a single vector of each token, which is key and value of all heads.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from torch import nn

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import BlockCopies, ScheduledSequence
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.kernels.torch_ops import rotate
from penstock_engine.layers.gathered_attention import GatheredAttention
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.linear import Linear
from penstock_engine.layers.parallel_group import ParallelGroup
from penstock_engine.layers.parallel_linear import RowParallelLinear
from penstock_engine.layers.rotary import CosSin
from penstock_engine.lora.adapters import targets_of
from penstock_engine.machine.device import DeviceMemory
from penstock_engine.memory.plan import plan_memory
from penstock_engine.models import config as config_module
from penstock_engine.models.attention import KVCacheSpec, Projection
from penstock_engine.models.attention_modules import ATTENTION
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.layer import LayerConfig, parse_layers
from penstock_engine.models.parameters import checkpoint_tensors, model_parameters
from penstock_engine.models.registry import Family
from penstock_engine.models.shard import Layout, Shard, make_shards, unsharded
from penstock_engine.models.step_cost import StepCostModel
from penstock_engine.options.config import EngineConfig

BLOCK_SIZE = 4
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
}  # fmt: skip
# Numbers of a token: keys and values of two heads of 8 in two layers, and a vector of 12.
NUMBERS = 2 * (2 * 2 * 8) + 12
# Scales of a token in a quantized cache: one for each of these vectors.
SCALES = 2 * (2 * 2) + 1


@dataclass(frozen=True, slots=True)
class LatentAttention:
    num_heads: int
    hidden_size: int
    head_dim: int = 12
    rotary_head_dim: int = 4

    @property
    def kv(self) -> KVCacheSpec:
        return KVCacheSpec(1, 1, self.head_dim)

    @property
    def projections(self) -> tuple[Projection, ...]:
        return (
            Projection("q_b_proj", self.num_heads, self.head_dim, self.hidden_size),
            Projection("kv_a_proj", 1, self.head_dim, self.hidden_size),
            Projection("o_proj", self.num_heads, self.head_dim, self.hidden_size),
        )

    @property
    def norms(self) -> Mapping[str, int]:
        return {}

    @property
    def flops_per_position(self) -> int:
        return 4 * self.num_heads * self.head_dim

    def shard(self, index: int, num_ranks: int) -> Self:
        return replace(self, num_heads=self.num_heads // num_ranks)


class LatentModule(nn.Module):
    def __init__(self, shard: Shard, layer: LayerConfig, group: ParallelGroup) -> None:
        super().__init__()
        own = shard.attention(layer)
        assert isinstance(own, LatentAttention)
        hidden, width = own.hidden_size, own.num_heads * own.head_dim
        self.q_b_proj = Linear(hidden, width, bias=False)
        self.kv_a_proj = Linear(hidden, own.head_dim, bias=False)
        self.o_proj = RowParallelLinear(width, hidden, bias=False, group=group)
        self._num_heads = own.num_heads

    def forward(
        self, x: torch.Tensor, cos_sin: CosSin, cache: KVCache, attend: GatheredAttention
    ) -> torch.Tensor:
        queries = self.q_b_proj(x).view(len(x), self._num_heads, -1)
        queries, new = rotate(queries, self.kv_a_proj(x)[:, None], *cos_sin)
        [vectors] = cache.numbers.squeeze(3)
        vectors.flatten(0, 1).index_copy_(0, attend.slots, new.squeeze(1))
        mixed, first = torch.empty_like(queries), 0
        for span in attend.spans:
            rows = slice(first, first + span.num_tokens)
            seen = vectors[list(span.blocks(0, BLOCK_SIZE))].flatten(0, 1)[: span.end]
            is_hidden = torch.arange(span.end) > torch.arange(span.start, span.end)[:, None]
            scores = torch.einsum("qhd,sd->hqs", queries[rows], seen)
            weights = scores.masked_fill(is_hidden, -torch.inf).softmax(-1)
            mixed[rows] = torch.einsum("hqs,sd->qhd", weights, seen)
            first = rows.stop
        output: torch.Tensor = self.o_proj(mixed.flatten(1))
        return output


@pytest.fixture
def model_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def parse(raw: Mapping[str, Any], family: Family) -> tuple[LayerConfig, ...]:
        first, middle, last = parse_layers(raw, family)
        return first, replace(middle, attention=LatentAttention(4, 32)), last

    monkeypatch.setattr(config_module, "parse_layers", parse)
    monkeypatch.setitem(ATTENTION, LatentAttention, LatentModule)  # type: ignore[arg-type]
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    Tokenizer(models.WordLevel({"a": 0}, "a")).save(str(tmp_path / "tokenizer.json"))
    config = ModelConfig.load(tmp_path)
    shapes = checkpoint_tensors(config, model_parameters(config), ())
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
        assert rows(shard, "q_b_proj") == range(24 * index, 24 * index + 24)
        assert rows(shard, "kv_a_proj") == range(12)
        assert rows(shard, "o_proj") == range(24 * index, 24 * index + 24)
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
        f"{attention}.q_b_proj": (48, 32),
        f"{attention}.kv_a_proj": (12, 32),
        f"{attention}.o_proj": (32, 48),
    }
    assert config.num_adapter_parameters(5) == 5 * sum(map(sum, targets.values()))
    cost = StepCostModel(config, 0, 4 * NUMBERS)
    one, two = (cost.estimate([sequence(start, start + 1)]) for start in (10, 11))
    assert two.flops - one.flops == 4 * (2 * 4 * 8 + 4 * 12)
    assert two.read_bytes - one.read_bytes == pytest.approx(4 * NUMBERS)


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


def sequence(start: int, end: int, blocks: Sequence[int] = (0, 1, 2, 3)) -> ScheduledSequence:
    tokens = tuple(5 * position % 64 for position in range(start, end))
    sampling = SamplingParams(max_tokens=1)
    return ScheduledSequence("", start, tokens, tuple(blocks), True, sampling, (), 0)


@torch.inference_mode()
def forward(model: PagedModel, sequences: list[ScheduledSequence]) -> torch.Tensor:
    return model.logits(model.forward(sequences)).clone()
