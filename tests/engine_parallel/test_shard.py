"""Cutting is arithmetic: every number of a model is on some rank, and only what must be is on two."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engine.families import FAMILIES

from penstock_engine.checkpoints.tensor_shard import split_evenly
from penstock_engine.core.errors import ModelError
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import Layout, Shard, make_shards, stages, unsharded

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 64,
    "intermediate_size": 100, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
MIXTRAL = {**LLAMA, "architectures": ["MixtralForCausalLM"], "num_local_experts": 5}


def config(raw: dict[str, Any], **changes: Any) -> ModelConfig:
    return ModelConfig.parse({**raw, **changes}, {})


@given(st.integers(0, 1000), st.integers(1, 64))
def test_portions_are_equal_and_leave_nothing(total: int, count: int) -> None:
    portions = [split_evenly(total, index, count) for index in range(count)]
    assert [thing for p in portions for thing in p.local] == list(range(total))
    assert {p.total for p in portions} == {total}
    assert max(map(len, portions)) - min(map(len, portions)) <= 1


@given(st.data())
def test_stages_follow_each_other_and_balance(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=40))
    ends = data.draw(st.integers(0, 100))
    num_stages = data.draw(st.integers(1, len(sizes)))
    cut = stages(sizes, ends, num_stages)
    assert [layer for stage in cut for layer in stage] == list(range(len(sizes)))
    assert len(cut) == num_stages
    assert all(cut)
    # A bound cannot be closer than one layer, unless a stage would be empty.
    weights = [sum(sizes[layer] for layer in stage) for stage in cut]
    weights[0] += ends
    if all(len(stage) > 1 for stage in cut):
        assert max(weights) <= sum(weights) / num_stages + max(sizes)


@pytest.mark.parametrize(
    ("num_ranks", "heads_of_rank"),
    [(1, [(0, 1)]), (2, [(0,), (1,)]), (4, [(0,), (0,), (1,), (1,)])],
)
def test_more_ranks_than_kv_heads_repeat_them(
    num_ranks: int, heads_of_rank: list[tuple[int, ...]]
) -> None:
    """A KV head is beside exactly the query heads that read it: 0-3 read the first, 4-7 the second."""
    cut = make_shards(config(LLAMA), Layout(num_ranks))
    assert [tuple(heads(shard, "k_proj")) for shard in cut] == heads_of_rank
    for shard in cut:
        assert {head // 4 for head in heads(shard, "q_proj")} == {*heads(shard, "k_proj")}


def heads(shard: Shard, product: str) -> range:
    """Heads of the first layer's product on a rank."""
    split = shard.tensor_shard(f"model.layers.0.self_attn.{product}.weight")
    assert split is not None
    rows, size = split.ranges[0].local, shard.config.layers[0].attention.head_dim
    return range(rows.start // size, rows.stop // size)


def test_experts_are_shared_out_whole_or_in_width() -> None:
    in_width = make_shards(config(MIXTRAL), Layout(2))
    whole = make_shards(config(MIXTRAL), Layout(2, splits_experts=True))
    assert [tuple(s.experts.local) for s in whole] == [(0, 1), (2, 3, 4)]
    assert [len(s.expert_widths) for s in whole] == [100, 100]
    assert [tuple(s.experts.local) for s in in_width] == [(0, 1, 2, 3, 4)] * 2
    assert [len(s.expert_widths) for s in in_width] == [50, 50]


@pytest.mark.parametrize(
    ("raw", "layout", "message"),
    [
        (LLAMA, Layout(3), "8 heads .* divisor of 8"),
        ({**LLAMA, "hidden_size": 96, "num_attention_heads": 12, "num_key_value_heads": 4},
         Layout(6), "4 heads of"),
        (LLAMA, Layout(1, 7), "6 layers are too few for 7 stages"),
        (LLAMA, Layout(2, splits_experts=True), "needs a model with experts"),
        (MIXTRAL, Layout(1, splits_experts=True), "--tensor-parallel-size above 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_is_refused(raw: dict[str, Any], layout: Layout, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        make_shards(config(raw), layout)
    assert caught.value.reason == "CannotSplit"


def checkpoint_sizes(model_dir: Path) -> dict[str, int]:
    """Size in bytes of each tensor of a checkpoint, by name."""
    sizes: dict[str, int] = {}
    for path in model_dir.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        sizes |= {name: e["data_offsets"][1] - e["data_offsets"][0] for name, e in header.items()}
    return sizes


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layout", [Layout(2), Layout(1, 3), Layout(2, 2)], ids=str)
def test_every_tensor_is_held_as_often_as_it_must_be(
    family: str, layout: Layout, family_dir: Callable[[str], Path]
) -> None:
    """Most tensors are held once. Norms, routers and biases of summed products are held by all ranks of
    a stage. KV heads are held by several ranks if there are more ranks than heads."""
    sizes = checkpoint_sizes(family_dir(family))
    cut = make_shards(ModelConfig.load(family_dir(family)), layout)
    held: Counter[str] = Counter()
    for name, size in sizes.items():
        held[name] = sum(shard.local_size({name: size}) for shard in cut)
    for name, size in sizes.items():
        times = {size, layout.tensor * size}
        assert held[name] in times, name
        is_product = name.endswith("_proj.weight") or name.startswith(("lm_head", "model.embed"))
        if is_product and not (repeats_kv(cut[0]) and name.split(".")[-2] in ("k_proj", "v_proj")):
            assert held[name] == size, name
    assert sum(held.values()) == sum(shard.local_size(sizes) for shard in cut)


def repeats_kv(shard: Shard) -> bool:
    return shard.num_ranks > shard.config.layers[0].attention.kv.num_heads


def test_keys_and_values_are_counted_where_they_are() -> None:
    model = config(LLAMA)
    whole = unsharded(model).kv_block_bytes(16, 2)
    assert whole == 16 * 6 * 2 * 2 * 8 * 2
    in_heads = [shard.kv_block_bytes(16, 2) for shard in make_shards(model, Layout(2, 3))]
    assert sum(in_heads) == whole
    repeated = [shard.kv_block_bytes(16, 2) for shard in make_shards(model, Layout(4))]
    assert sum(repeated) == 2 * whole
