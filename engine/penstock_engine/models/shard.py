"""Assigns the parts of a model to ranks. Imports no torch.

pipeline    stages of whole layers; the first one also has the embedding and the head
tensor      in a stage, each rank has some heads, a part of each MLP's intermediate size and a part of
            the vocabulary; with expert parallelism it has some whole experts
ranks       stage by stage: 0 1 | 2 3 are two stages of two tensor-parallel ranks
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock_engine.checkpoints.tensor_shard import ShardRange, TensorShard, split_evenly
from penstock_engine.checkpoints.weights import PACKED, ROW_PARALLEL
from penstock_engine.core.errors import ModelError
from penstock_engine.models.attention import AttentionConfig, KVCacheSpec
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.layer import LayerConfig


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of parallelism.

    tensor: ranks per pipeline stage. pipeline: number of stages. splits_experts: whether the ranks of
    a stage have whole experts each, instead of a part of each expert.
    """

    tensor: int = 1
    pipeline: int = 1
    splits_experts: bool = False

    @property
    def num_ranks(self) -> int:
        return self.tensor * self.pipeline


ONE_RANK = Layout()


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a model on one rank."""

    config: ModelConfig
    layers: range
    index: int  # of the rank among the num_ranks that split each layer
    num_ranks: int
    # mlp_widths, expert_widths: range of the intermediate size of dense MLPs and of experts
    mlp_widths: ShardRange
    experts: ShardRange
    expert_widths: ShardRange
    vocabulary: ShardRange  # rows of embedding and head, if the rank has them

    @property
    def is_first_stage(self) -> bool:
        """Whether the rank is in the first stage, which has embedding, final norm and head."""
        return self.layers.start == 0

    @property
    def kv_specs(self) -> list[KVCacheSpec]:
        """KV cache specification of each of the rank's layers."""
        return [self.attention(self.config.layers[index]).kv for index in self.layers]

    def kv_block_bytes(self, block_size: int, number_bytes: int, scale_bytes: int = 0) -> int:
        """Bytes of a block of block_size tokens in all of the rank's layers."""
        return sum(
            spec.block_bytes(block_size, number_bytes, scale_bytes) for spec in self.kv_specs
        )

    def attention(self, layer: LayerConfig) -> AttentionConfig:
        """The rank's part of a layer's attention."""
        return layer.attention.shard(self.index, self.num_ranks)

    def tensor_shard(self, name: str) -> TensorShard | None:
        """The rank's part of a parameter, by its name in the model. None: all of it."""
        path = name.split(".")
        for product in path:
            parts = PACKED.get(product, (product,))
            found = (self._range(part, path) for part in parts)
            ranges = tuple(shard_range for shard_range in found if shard_range is not None)
            if ranges and product not in ROW_PARALLEL:
                return TensorShard(0, ranges)
            if ranges:
                return None if path[-1] == "bias" else TensorShard(1, ranges)
        return None

    def local_size(self, sizes: Mapping[str, int]) -> int:
        """Size of a checkpoint's tensors on this rank. sizes: of the full tensors, in any unit."""
        total = 0
        for name, size in sizes.items():
            if (own := self.local_name(name)) is not None:
                shard = self.tensor_shard(own)
                total += size if shard is None else shard.num_local * size // shard.num_total
        return total

    def local_name(self, name: str) -> str | None:
        """The model's name of a checkpoint's tensor. None: the tensor belongs to other ranks."""
        ours = {theirs: name for name, theirs in self.config.family.names.items()}
        path = [ours.get(part, part) for part in name.split(".")]
        return ".".join(path) if self._has_module(path) else None

    def _range(self, product: str, path: Sequence[str]) -> ShardRange | None:
        """The rank's part of a product. path: name of a parameter that belongs to it."""
        if "layers" in path:
            layer = self.config.layers[int(path[path.index("layers") + 1])]
            for projection in layer.attention.projections:
                if projection.name == product:
                    return projection.shard_range(self.index, self.num_ranks)
        match product:
            case "gate_proj" | "up_proj" | "down_proj":
                return self.expert_widths if "experts" in path else self.mlp_widths
            case "embed_tokens" | "lm_head":
                return self.vocabulary
            case _:
                return None

    def _has_module(self, path: Sequence[str]) -> bool:
        for kind, held in (("layers", self.layers), ("experts", self.experts.local)):
            if kind in path and int(path[path.index(kind) + 1]) not in held:
                return False
        return "layers" in path or self.is_first_stage


def make_shards(config: ModelConfig, layout: Layout) -> list[Shard]:
    """The shards of all ranks, in order. Raises ModelError (CannotSplit)."""
    _check(config, layout)
    return [
        _shard(config, layout, layers, index)
        for layers in stages(_layer_parameters(config), _end_parameters(config), layout.pipeline)
        for index in range(layout.tensor)
    ]


def unsharded(config: ModelConfig) -> Shard:
    return make_shards(config, ONE_RANK)[0]


def stages(layer_sizes: Sequence[int], ends_size: int, num_stages: int) -> list[range]:
    """Assign layers to stages, at least one each, so that stages have about the same size.

    ends_size: size of embedding and head, which are in the first stage.
    """
    num_layers = len(layer_sizes)
    before = list(itertools.accumulate(layer_sizes, initial=ends_size))
    bounds = [0]
    for stage in range(1, num_stages):
        target = before[-1] * stage / num_stages
        ends = range(bounds[-1] + 1, num_layers - num_stages + stage + 1)
        bounds.append(min((abs(before[end] - target), end) for end in ends)[1])
    return [range(*bound) for bound in itertools.pairwise([*bounds, num_layers])]


def _shard(config: ModelConfig, layout: Layout, layers: range, index: int) -> Shard:
    num_ranks = layout.tensor
    num_experts, expert_width = 0, 0
    if config.experts is not None:
        num_experts, expert_width = config.experts.num_experts, config.experts.intermediate_size
    in_experts = (0, 1) if layout.splits_experts else (index, num_ranks)
    among_experts = (index, num_ranks) if layout.splits_experts else (0, 1)
    return Shard(
        config,
        layers=layers,
        index=index,
        num_ranks=num_ranks,
        mlp_widths=split_evenly(config.intermediate_size, index, num_ranks),
        experts=split_evenly(num_experts, *among_experts),
        expert_widths=split_evenly(expert_width, *in_experts),
        vocabulary=split_evenly(config.vocab_size, index, num_ranks),
    )


def _check(config: ModelConfig, layout: Layout) -> None:
    for layer in config.layers:
        _check_heads(layer.attention, layout.tensor)
    if layout.pipeline > config.num_layers:
        raise _cannot(
            f"{config.num_layers} layers are too few for {layout.pipeline} stages: set "
            f"--pipeline-parallel-size to at most {config.num_layers}"
        )
    if layout.splits_experts and (config.experts is None or layout.tensor == 1):
        raise _cannot(
            "--enable-expert-parallel needs a model with experts, and --tensor-parallel-size above 1"
        )


def _check_heads(attention: AttentionConfig, num_ranks: int) -> None:
    for projection in attention.projections:
        # The outputs of row-parallel products are summed, so no head may be on two ranks.
        if projection.name in ROW_PARALLEL and projection.num_heads % num_ranks:
            raise _cannot(
                f"{projection.num_heads} heads cannot be split evenly over {num_ranks} ranks: set "
                f"--tensor-parallel-size to a divisor of {projection.num_heads}"
            )
    fewer, more = sorted((attention.kv.num_heads, num_ranks))
    if more % fewer:
        raise _cannot(
            f"{attention.kv.num_heads} heads of keys and values fit {num_ranks} ranks neither by "
            f"division nor by repetition: set --tensor-parallel-size to a divisor or a multiple"
        )


def _cannot(message: str) -> ModelError:
    return ModelError("CannotSplit", message)


def _layer_parameters(config: ModelConfig) -> list[int]:
    """Approximate number of parameters of each layer: those of its matrix products."""
    num_products = 2 if config.family.mlp == "plain" else 3

    def of(layer: LayerConfig) -> int:
        width = config.intermediate_size
        if layer.has_experts and config.experts is not None:
            width = config.experts.num_experts * config.experts.intermediate_size
        attention = sum(projection.num_parameters for projection in layer.attention.projections)
        return attention + config.hidden_size * num_products * width

    return [of(layer) for layer in config.layers]


def _end_parameters(config: ModelConfig) -> int:
    num_matrices = 1 if config.tie_word_embeddings else 2
    return num_matrices * config.vocab_size * config.hidden_size
