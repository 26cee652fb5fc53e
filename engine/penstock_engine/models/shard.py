"""What each rank holds of a model: the one place where models are cut. Imports no torch.

pipeline    stages of whole layers; the first one has the embedding and the head as well
tensor      in a stage, each rank has some heads, some of each MLP's width and some of the
            vocabulary; where experts are split, it has some experts, and those whole
ranks       stage by stage: 0 1 | 2 3 is a pipeline of two, each stage cut in two
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock_engine.core.errors import ModelError
from penstock_engine.cut import Cut, Portion
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.layer import LayerConfig
from penstock_engine.weights import PACKED

# Products of which a rank has some inputs and all outputs: theirs are sums over the ranks.
SUMMED = ("o_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Layout:
    """Over how many ranks a model is spread.

    splits_experts: among the tensor parallel ranks, instead of the width of each.
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
    """One rank's part. widths: of MLPs. vocabulary: rows of embedding and head, where it has them."""

    config: ModelConfig
    layers: range
    heads: Portion
    kv_heads: Portion
    widths: Portion
    experts: Portion
    expert_widths: Portion
    vocabulary: Portion

    @property
    def has_ends(self) -> bool:
        """Embedding, last norm and head."""
        return self.layers.start == 0

    def kv_bytes_per_token(self, number_bytes: int, scale_bytes: int = 0) -> int:
        """As ModelConfig's, in the layers and heads that are here."""
        head_bytes = self.config.head_dim * number_bytes + scale_bytes
        return 2 * len(self.layers) * len(self.kv_heads) * head_bytes

    def cut(self, name: str) -> Cut | None:
        """What is here of the tensor of a parameter, by its name. None: all of it."""
        path = name.split(".")
        for product in path:
            parts = PACKED.get(product, (product,))
            found = (self._portion(part, is_expert="experts" in path) for part in parts)
            portions = tuple(portion for portion in found if portion is not None)
            if portions and product not in SUMMED:
                return Cut(0, portions)
            if portions:
                return None if path[-1] == "bias" else Cut(1, portions)
        return None

    def held(self, sizes: Mapping[str, int]) -> int:
        """How much of a checkpoint is here. sizes: of its tensors, by name, in any unit."""
        held = 0
        for name, size in sizes.items():
            if (own := self.own_name(name)) is not None:
                cut = self.cut(own)
                held += size if cut is None else cut.num_kept * size // cut.num_whole
        return held

    def own_name(self, name: str) -> str | None:
        """Of a tensor of the checkpoint, as the model spells it. None: it belongs to others."""
        ours = {theirs: name for name, theirs in self.config.family.names.items()}
        path = [ours.get(part, part) for part in name.split(".")]
        return ".".join(path) if self._has_module(path) else None

    def _portion(self, product: str, *, is_expert: bool) -> Portion | None:
        match product:
            case "q_proj" | "o_proj":
                return self.heads.times(self.config.head_dim)
            case "k_proj" | "v_proj":
                return self.kv_heads.times(self.config.head_dim)
            case "gate_proj" | "up_proj" | "down_proj":
                return self.expert_widths if is_expert else self.widths
            case "embed_tokens" | "lm_head":
                return self.vocabulary
            case _:
                return None

    def _has_module(self, path: Sequence[str]) -> bool:
        for kind, held in (("layers", self.layers), ("experts", self.experts.kept)):
            if kind in path and int(path[path.index(kind) + 1]) not in held:
                return False
        return "layers" in path or self.has_ends


def shards(config: ModelConfig, layout: Layout) -> list[Shard]:
    """One for each rank. Raises ModelError (CannotSplit)."""
    _check(config, layout)
    return [
        _shard(config, layout, layers, index)
        for layers in stages(_layer_parameters(config), _end_parameters(config), layout.pipeline)
        for index in range(layout.tensor)
    ]


def whole(config: ModelConfig) -> Shard:
    return shards(config, ONE_RANK)[0]


def portion(total: int, index: int, count: int) -> Portion:
    """The index-th of `count` portions, as equal as they can be."""
    return Portion(range(total * index // count, total * (index + 1) // count), total)


def stages(layer_sizes: Sequence[int], ends_size: int, num_stages: int) -> list[range]:
    """Layers of each stage, at least one, so that all hold about the same; the first has the ends."""
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
        heads=portion(config.num_heads, index, num_ranks),
        kv_heads=_kv_heads(config.num_kv_heads, index, num_ranks),
        widths=portion(config.intermediate_size, index, num_ranks),
        experts=portion(num_experts, *among_experts),
        expert_widths=portion(expert_width, *in_experts),
        vocabulary=portion(config.vocab_size, index, num_ranks),
    )


def _kv_heads(num_kv_heads: int, index: int, num_ranks: int) -> Portion:
    """Where there are more ranks than heads, several have the same one."""
    if num_ranks <= num_kv_heads:
        return portion(num_kv_heads, index, num_ranks)
    head = num_kv_heads * index // num_ranks
    return Portion(range(head, head + 1), num_kv_heads)


def _check(config: ModelConfig, layout: Layout) -> None:
    if config.num_heads % layout.tensor:
        raise _cannot(
            f"{config.num_heads} heads cannot be split evenly over {layout.tensor} ranks: set "
            f"tensor_parallel_size to a divisor of {config.num_heads}"
        )
    kv_heads = sorted((config.num_kv_heads, layout.tensor))
    if kv_heads[1] % kv_heads[0]:
        raise _cannot(
            f"{config.num_kv_heads} heads of keys and values fit {layout.tensor} ranks neither by "
            f"division nor by repetition: set tensor_parallel_size to a divisor or a multiple"
        )
    if layout.pipeline > config.num_layers:
        raise _cannot(
            f"{config.num_layers} layers are too few for {layout.pipeline} stages: set "
            f"pipeline_parallel_size to at most {config.num_layers}"
        )
    if layout.splits_experts and (config.experts is None or layout.tensor == 1):
        raise _cannot(
            "enable_expert_parallel needs a model with experts, and a tensor_parallel_size above 1"
        )


def _cannot(message: str) -> ModelError:
    return ModelError("CannotSplit", message)


def _layer_parameters(config: ModelConfig) -> list[int]:
    """Of each layer's products; the rest does not weigh."""
    attention = 2 * (config.num_heads + config.num_kv_heads) * config.head_dim
    num_products = 2 if config.family.mlp == "plain" else 3

    def of(layer: LayerConfig) -> int:
        width = config.intermediate_size
        if layer.has_experts and config.experts is not None:
            width = config.experts.num_experts * config.experts.intermediate_size
        return config.hidden_size * (attention + num_products * width)

    return [of(layer) for layer in config.layers]


def _end_parameters(config: ModelConfig) -> int:
    num_matrices = 1 if config.tie_word_embeddings else 2
    return num_matrices * config.vocab_size * config.hidden_size
