"""Modules of the kinds of attention that attention.py describes."""

from collections.abc import Mapping

import torch
from torch import nn

from penstock_engine.kernels.operations import operations
from penstock_engine.layers.attention import QKV, AttentionShape, StepAttention
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.linear import Linear
from penstock_engine.layers.norm import NORMS
from penstock_engine.layers.parallel_group import ParallelGroup
from penstock_engine.layers.parallel_linear import RowParallelLinear
from penstock_engine.layers.rotary import CosSin
from penstock_engine.models.attention import AttentionConfig, GroupedQueryAttention
from penstock_engine.models.layer import LayerConfig
from penstock_engine.models.shard import Shard


class Attention(nn.Module):
    """Grouped-query attention of the heads on this rank, with packed QKV projection."""

    def __init__(self, shard: Shard, layer: LayerConfig, group: ParallelGroup) -> None:
        super().__init__()
        config, own = shard.config, shard.attention(layer)
        assert isinstance(own, GroupedQueryAttention)
        self._own = own
        self._shape = AttentionShape(own.scale, own.softcap, layer.window_tokens)
        width, kv_width = own.num_heads * own.head_dim, own.num_kv_heads * own.head_dim
        self.qkv_proj = Linear(
            config.hidden_size, width + 2 * kv_width, bias="qkv_proj" in config.biases
        )
        self.o_proj = RowParallelLinear(
            width, config.hidden_size, bias="o_proj" in config.biases, group=group
        )
        if own.has_qk_norm:
            make_norm = NORMS[config.family.norm]
            self.q_norm = make_norm(own.head_dim, config.norm_eps)
            self.k_norm = make_norm(own.head_dim, config.norm_eps)

    def forward(
        self, x: torch.Tensor, cos_sin: CosSin, cache: KVCache, attend: StepAttention
    ) -> torch.Tensor:
        own = self._own
        heads = self.qkv_proj(x).view(len(x), -1, own.head_dim)
        q, k, v = heads.split((own.num_heads, own.num_kv_heads, own.num_kv_heads), dim=1)
        if own.has_qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = operations(q.device).rotate(q, k, *cos_sin)
        mixed = attend(QKV(q, k, v), cache, self._shape)
        output: torch.Tensor = self.o_proj(mixed.view(len(x), -1))
        return output


# Module of each kind of attention.
ATTENTION: Mapping[type[AttentionConfig], type[nn.Module]] = {GroupedQueryAttention: Attention}


def make_attention(shard: Shard, layer: LayerConfig, group: ParallelGroup) -> nn.Module:
    return ATTENTION[type(layer.attention)](shard, layer, group)
