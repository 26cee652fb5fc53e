"""Names and shapes of a model's parameters, and of the checkpoint's tensors they are made of.

Says without torch what decoder.py builds and loading.py reads, so that a checkpoint can be compared
with the whole model by its headers.
"""

from collections.abc import Container, Iterator, Mapping

from penstock_engine.checkpoints.tensor_shard import TensorShard
from penstock_engine.checkpoints.weights import parts_of, renamed
from penstock_engine.models.attention import AttentionConfig, weight_shapes
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.layer import LayerConfig
from penstock_engine.models.registry import Order
from penstock_engine.models.shard import Shard, unsharded

Shape = tuple[int, ...]
Shapes = Iterator[tuple[str, Shape]]

# Norms of a layer by their place in it.
NORMS: Mapping[Order, tuple[str, ...]] = {
    "pre_norm": ("input_layernorm", "post_attention_layernorm"),
    "sandwich": (
        "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
    "parallel": ("input_layernorm",),
}  # fmt: skip


def model_parameters(config: ModelConfig) -> Shapes:
    """Names and shapes of all parameters of a DecoderForCausalLM on one rank."""
    vocabulary = (config.vocab_size, config.hidden_size)
    yield "model.embed_tokens.weight", vocabulary
    for index, layer in enumerate(config.layers):
        for name, shape in _layer(config, layer):
            yield f"model.layers.{index}.{name}", shape
    yield from _norm(config, "model.norm", config.hidden_size)
    if not config.tie_word_embeddings:
        yield from _linear("lm_head", vocabulary, has_bias="lm_head" in config.biases)


def draft_head_parameters(config: ModelConfig, *, has_bias: bool) -> Shapes:
    """Names and shapes of all parameters of a DraftHeadDecoder. has_bias: whether fc has a bias."""
    hidden_size = config.hidden_size
    yield from _linear("fc", (hidden_size, 2 * hidden_size), has_bias=has_bias)
    for index, layer in enumerate(config.layers):
        for name, shape in _layer(config, layer):
            if index or not name.startswith("input_layernorm."):
                yield f"layers.{index}.{name}", shape


def checkpoint_tensors(config: ModelConfig, parameters: Shapes, stored: Container[str]) -> Shapes:
    """Names in the checkpoint and shapes of the tensors that the parameters are read from, one at a time.

    A configuration may ask for any number of experts: who compares it with a checkpoint can end at the first
    tensor that is not there.

    stored: names of the checkpoint's tensors. Packed projections, and the experts of a layer, are one
    tensor if there is one of that name.
    """
    shard = unsharded(config)
    for name, shape in parameters:
        yield from _sources(config, shard, name, shape, stored)


def _sources(
    config: ModelConfig, shard: Shard, name: str, shape: Shape, stored: Container[str]
) -> Shapes:
    names = config.family.names
    if (whole := renamed(name, names)) in stored:
        yield whole, shape
        return
    ranges = shard.tensor_shard(name)
    if len(shape) < 3:
        yield from _parts(name, shape, ranges, names).items()
        return
    module, _, leaf = name.rpartition(".")
    for expert in range(shape[0]):
        yield from _parts(f"{module}.{expert}.{leaf}.weight", shape[1:], ranges, names).items()


def _parts(
    name: str, shape: Shape, ranges: TensorShard | None, names: Mapping[str, str]
) -> dict[str, Shape]:
    parts = parts_of(name, names)
    if ranges is None or len(parts) == 1:
        return dict.fromkeys(parts, shape)
    rows = (shard_range.total for shard_range in ranges.ranges)
    return {part: (count, *shape[1:]) for part, count in zip(parts, rows, strict=True)}


def _layer(config: ModelConfig, layer: LayerConfig) -> Shapes:
    for name in NORMS[config.family.order]:
        yield from _norm(config, name, config.hidden_size)
    for name, shape in (*_attention(config, layer.attention), *_mlp(config, layer)):
        yield name, shape


def _attention(config: ModelConfig, attention: AttentionConfig) -> Shapes:
    for name, shape in weight_shapes(attention.projections, is_packed=True).items():
        yield from _linear(f"self_attn.{name}", shape, has_bias=name in config.biases)
    for name, size in attention.norms.items():
        yield from _norm(config, f"self_attn.{name}", size)


def _mlp(config: ModelConfig, layer: LayerConfig) -> Shapes:
    hidden, width = config.hidden_size, config.intermediate_size
    if layer.has_experts and config.experts is not None:
        count, width = config.experts.num_experts, config.experts.intermediate_size
        yield "mlp.gate.weight", (count, hidden)
        yield "mlp.experts.gate_up_proj", (count, 2 * width, hidden)
        yield "mlp.experts.down_proj", (count, hidden, width)
        return
    has_bias = "mlp" in config.biases
    first = ("up_proj", width) if config.family.mlp == "plain" else ("gate_up_proj", 2 * width)
    yield from _linear(f"mlp.{first[0]}", (first[1], hidden), has_bias=has_bias)
    yield from _linear("mlp.down_proj", (hidden, width), has_bias=has_bias)


def _norm(config: ModelConfig, name: str, size: int) -> Shapes:
    yield f"{name}.weight", (size,)
    if config.family.norm == "layer":
        yield f"{name}.bias", (size,)


def _linear(name: str, shape: Shape, *, has_bias: bool) -> Shapes:
    yield f"{name}.weight", shape
    if has_bias:
        yield f"{name}.bias", shape[:1]
