"""Attention of a layer as data: its projections, and its part of the KV cache. Imports no torch.

Memory plan, split over ranks, step cost, LoRA adapters and the check of a checkpoint are computed from
these data, and cache tensors are allocated from them. attention_modules.py has the computation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self, get_args

from penstock_engine.checkpoints.tensor_shard import ShardRange, split_heads
from penstock_engine.checkpoints.weights import PACKED, ROW_PARALLEL
from penstock_engine.models.fields import (
    config_error,
    read_count,
    read_number,
    read_optional_number,
)
from penstock_engine.models.registry import Family

# Kind of a layer, as in layer_types of config.json.
LayerKind = Literal["full_attention", "sliding_attention"]
KINDS: tuple[LayerKind, ...] = get_args(LayerKind)


@dataclass(frozen=True, slots=True)
class KVCacheSpec:
    """KV cache of one token in a layer: num_vectors vectors for each head.

    num_vectors: 2 for a key and a value. num_heads: on a rank, or in the whole model. head_dim: numbers
    of a vector.
    """

    num_vectors: int
    num_heads: int
    head_dim: int

    def shape(self, num_blocks: int, block_size: int) -> tuple[int, ...]:
        """Shape of the layer's cache. The second dimension is blocks, as copies of blocks expect."""
        return (self.num_vectors, num_blocks, block_size, self.num_heads, self.head_dim)

    def block_bytes(self, block_size: int, number_bytes: int, scale_bytes: int = 0) -> int:
        """Bytes of a block of block_size tokens. scale_bytes: of the scale of each vector."""
        vector_bytes = self.head_dim * number_bytes + scale_bytes
        return block_size * self.num_vectors * self.num_heads * vector_bytes


@dataclass(frozen=True, slots=True)
class Projection:
    """Linear projection to heads, or from them if it is row-parallel. Ranks split it by heads.

    other_size: number of inputs, or of outputs if it is row-parallel. is_read_directly: whether the module
    reads the weight itself, instead of multiplying inputs by it. Such a weight is a plain tensor: it is
    neither quantized nor adapted.
    """

    name: str
    num_heads: int
    head_dim: int
    other_size: int
    is_read_directly: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (outputs, inputs) of the weight."""
        width = self.num_heads * self.head_dim
        is_row_parallel = self.name in ROW_PARALLEL
        return (self.other_size, width) if is_row_parallel else (width, self.other_size)

    @property
    def num_parameters(self) -> int:
        return self.num_heads * self.head_dim * self.other_size

    def shard_range(self, index: int, num_ranks: int) -> ShardRange:
        """The range of outputs, or inputs if row-parallel, on one of num_ranks ranks."""
        return split_heads(self.num_heads, index, num_ranks).times(self.head_dim)


class AttentionConfig(Protocol):
    """Interface of a kind of attention: what memory, parallelism, cost and adapters depend on."""

    @property
    def num_activations(self) -> int:
        """Numbers of a token that the module holds at a time, besides its input and output."""
        ...

    @property
    def num_launches(self) -> int:
        """Kernels that the module launches for a step."""
        ...

    @property
    def rotary_head_dim(self) -> int:
        """Numbers of a query's head that rotary embedding may rotate."""
        ...

    @property
    def kv(self) -> KVCacheSpec:
        """KV cache of one token."""
        ...

    @property
    def projections(self) -> tuple[Projection, ...]:
        """All linear projections; those that weights.PACKED packs, in its order."""
        ...

    @property
    def norms(self) -> Mapping[str, int]:
        """Sizes of the norms within attention, by name."""
        ...

    @property
    def flops_per_position(self) -> int:
        """Floating-point operations of a token for each position that it attends to."""
        ...

    def shard(self, index: int, num_ranks: int) -> Self:
        """The part with the heads of one of num_ranks ranks."""
        ...


@dataclass(frozen=True, slots=True)
class GroupedQueryAttention:
    """Attention in which num_heads / num_kv_heads heads of queries share a head of keys and values."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    has_qk_norm: bool
    scale: float  # multiplies the products of queries and keys
    softcap: float | None  # limits them to softcap * tanh(x / softcap); None: no limit

    @property
    def num_activations(self) -> int:
        # Queries, keys and values; the normed and the rotated queries and keys; and what is attended.
        return 4 * (self.num_heads + self.num_kv_heads) * self.head_dim

    @property
    def num_launches(self) -> int:
        return 6  # two products, rotary embedding, KV write, two of attention

    @property
    def rotary_head_dim(self) -> int:
        return self.head_dim

    @property
    def kv(self) -> KVCacheSpec:
        return KVCacheSpec(2, self.num_kv_heads, self.head_dim)

    @property
    def projections(self) -> tuple[Projection, ...]:
        def of(name: str, num_heads: int) -> Projection:
            return Projection(name, num_heads, self.head_dim, self.hidden_size)

        return (
            of("q_proj", self.num_heads),
            of("k_proj", self.num_kv_heads),
            of("v_proj", self.num_kv_heads),
            of("o_proj", self.num_heads),
        )

    @property
    def norms(self) -> Mapping[str, int]:
        return dict.fromkeys(("q_norm", "k_norm"), self.head_dim) if self.has_qk_norm else {}

    @property
    def flops_per_position(self) -> int:
        return 4 * self.num_heads * self.head_dim  # a product with the key, and one with the value

    def shard(self, index: int, num_ranks: int) -> Self:
        return replace(
            self,
            num_heads=len(split_heads(self.num_heads, index, num_ranks)),
            num_kv_heads=len(split_heads(self.num_kv_heads, index, num_ranks)),
        )


def adaptable_projections(attention: AttentionConfig) -> list[Projection]:
    """Projections that an adapter can change."""
    return [each for each in attention.projections if not each.is_read_directly]


def weight_shapes(
    projections: Iterable[Projection], *, is_packed: bool
) -> dict[str, tuple[int, int]]:
    """Shapes (outputs, inputs) of projections' weights, by name. is_packed: as weights.PACKED says."""
    packed_in = {part: packed for packed, parts in PACKED.items() for part in parts}
    shapes: dict[str, tuple[int, int]] = {}
    for projection in projections:
        name = packed_in.get(projection.name, projection.name) if is_packed else projection.name
        num_outputs, num_inputs = projection.shape
        shapes[name] = (shapes.get(name, (0, 0))[0] + num_outputs, num_inputs)
    return shapes


def parse_attention(raw: Mapping[str, Any], family: Family) -> Mapping[LayerKind, AttentionConfig]:
    """Parse the attention of each kind of layer that a model may have.

    raw: config.json with the family's defaults. Raises ModelError.
    """
    num_heads = read_count(raw, "num_attention_heads")
    num_kv_heads = read_count(raw, "num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise config_error("num_attention_heads is not a multiple of num_key_value_heads")
    hidden_size = read_count(raw, "hidden_size")
    head_dim = read_count(raw, "head_dim", hidden_size // num_heads)
    attention = GroupedQueryAttention(
        num_heads,
        num_kv_heads,
        head_dim,
        hidden_size,
        family.qk_norm,
        scale=read_number(raw, "query_pre_attn_scalar", head_dim) ** -0.5,
        softcap=read_optional_number(raw, "attn_logit_softcapping"),
    )
    return dict.fromkeys(KINDS, attention)
