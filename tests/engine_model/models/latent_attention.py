"""Example of a kind of attention: latent attention with absorbed weights (DeepSeek-V2, arXiv 2405.04434).

The cache keeps a vector of each token, from which the keys and values of all heads could be computed. Queries
and outputs are multiplied by the weights of that product instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import nn

from penstock_engine.kernels.torch_ops import rotate
from penstock_engine.layers.attention import StepAttention
from penstock_engine.layers.gathered_attention import GatheredAttention
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.linear import Linear
from penstock_engine.layers.parallel_group import ParallelGroup
from penstock_engine.layers.parallel_linear import RowParallelLinear
from penstock_engine.layers.rotary import CosSin
from penstock_engine.models.attention import KVCacheSpec, Projection
from penstock_engine.models.layer import LayerConfig
from penstock_engine.models.shard import Shard


@dataclass(frozen=True, slots=True)
class LatentAttention:
    num_heads: int
    hidden_size: int
    head_dim: int = 6
    latent_dim: int = 8
    rotary_head_dim: int = 4

    @property
    def num_activations(self) -> int:
        queries = self.head_dim + self.rotary_head_dim
        attended = self.latent_dim + self.head_dim
        return self.num_heads * (queries + self.kv.head_dim + attended) + self.kv.head_dim

    @property
    def num_launches(self) -> int:
        return 9

    @property
    def kv(self) -> KVCacheSpec:
        return KVCacheSpec(1, 1, self.latent_dim + self.rotary_head_dim)

    @property
    def projections(self) -> tuple[Projection, ...]:
        queries, keys_and_values = self.head_dim + self.rotary_head_dim, 2 * self.head_dim
        return (
            Projection("q_b_proj", self.num_heads, queries, self.hidden_size),
            Projection("kv_a_proj", 1, self.kv.head_dim, self.hidden_size),
            Projection(
                "kv_b_proj", self.num_heads, keys_and_values, self.latent_dim, is_read_directly=True
            ),
            Projection("o_proj", self.num_heads, self.head_dim, self.hidden_size),
        )

    @property
    def norms(self) -> Mapping[str, int]:
        return {}

    @property
    def flops_per_position(self) -> int:
        return 2 * self.num_heads * (self.kv.head_dim + self.latent_dim)

    def shard(self, index: int, num_ranks: int) -> Self:
        return replace(self, num_heads=self.num_heads // num_ranks)


class LatentModule(nn.Module):
    def __init__(self, shard: Shard, layer: LayerConfig, group: ParallelGroup) -> None:
        super().__init__()
        own = shard.attention(layer)
        assert isinstance(own, LatentAttention)
        self._own = own
        for projection in own.projections[:3]:
            num_outputs, num_inputs = projection.shape
            setattr(self, projection.name, Linear(num_inputs, num_outputs, bias=False))
        width = own.num_heads * own.head_dim
        self.o_proj = RowParallelLinear(width, own.hidden_size, bias=False, group=group)

    def forward(
        self, x: torch.Tensor, cos_sin: CosSin, cache: KVCache, attend: StepAttention
    ) -> torch.Tensor:
        assert isinstance(attend, GatheredAttention)
        assert cache.scales is None
        own = self._own
        weights = self.kv_b_proj.weight.view(own.num_heads, 2 * own.head_dim, own.latent_dim)
        for_keys, for_values = weights.split(own.head_dim, dim=1)
        queries = self.q_b_proj(x).view(len(x), own.num_heads, -1)
        content, turned = queries.split((own.head_dim, own.rotary_head_dim), dim=-1)
        latent, new_turned = self.kv_a_proj(x).split((own.latent_dim, own.rotary_head_dim), dim=-1)
        turned, new_turned = rotate(turned, new_turned[:, None], *cos_sin)
        queries = torch.cat((torch.einsum("thd,hdr->thr", content, for_keys), turned), -1)
        [vectors] = cache.numbers.squeeze(3)
        new = torch.cat((latent, new_turned.squeeze(1)), -1)
        vectors.flatten(0, 1).index_copy_(0, attend.slots, new)
        mixed, row = queries.new_empty(len(x), own.num_heads, own.latent_dim), 0
        for span in attend.spans:
            cached = vectors[list(span.blocks(0, cache.numbers.shape[2]))].flatten(0, 1)
            for position in range(span.start, span.end):
                seen = cached[: position + 1]
                shares = (queries[row] @ seen.T).softmax(-1)
                mixed[row] = shares @ seen[:, : own.latent_dim]
                row += 1
        output: torch.Tensor = self.o_proj(
            torch.einsum("thr,hdr->thd", mixed, for_values).flatten(1)
        )
        return output
