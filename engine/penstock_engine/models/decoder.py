"""Decoder-only transformer, from which every model family of registry.py is built.

    token ids -> embedding -> layer -> layer -> ... -> norm -> head -> logits
                                |
                                attention and MLP, each added to the residual stream

Parameters have the names of Llama's checkpoints, except that products with the same input are
packed into one: qkv_proj, gate_up_proj.

A decoder is the part of a model that shard.py assigns to one rank. `group`: the ranks that share
its layers.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from penstock_engine.checkpoints.tensor_shard import split_evenly
from penstock_engine.layers.attention import StepAttention
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.linear import Linear
from penstock_engine.layers.mlp import GatedMLP, PlainMLP
from penstock_engine.layers.moe import Experts, MixtureOfExperts
from penstock_engine.layers.norm import NORMS
from penstock_engine.layers.parallel_group import SINGLE_RANK, ParallelGroup
from penstock_engine.layers.parallel_linear import VocabParallelEmbedding
from penstock_engine.layers.rotary import CosSin
from penstock_engine.models.attention_modules import make_attention
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.layer import LayerConfig
from penstock_engine.models.registry import Order
from penstock_engine.models.rotaries import Rotaries
from penstock_engine.models.shard import Shard, unsharded

# Output of the previous layer's last half, which the next norm adds to the residual stream x, because
# the addition is fused with the norm. None before the first layer.
Added = torch.Tensor | None


def make_norm(config: ModelConfig) -> nn.Module:
    return NORMS[config.family.norm](config.hidden_size, config.norm_eps)


def make_mlp(shard: Shard, layer: LayerConfig, group: ParallelGroup) -> nn.Module:
    config = shard.config
    if layer.has_experts and config.experts is not None:
        return MixtureOfExperts(
            num_experts=config.experts.num_experts,
            num_per_token=config.experts.num_experts_per_token,
            hidden_size=config.hidden_size,
            intermediate_size=len(shard.expert_widths),
            activation=config.activation,
            renormalizes=config.experts.renormalizes,
            local_experts=shard.experts.local,
            group=group,
        )
    mlp = PlainMLP if config.family.mlp == "plain" else GatedMLP
    return mlp(
        config.hidden_size,
        len(shard.mlp_widths),
        config.activation,
        bias="mlp" in config.biases,
        group=group,
    )


class PreNormLayer(nn.Module):
    """Layer that normalizes before attention and before the MLP (Llama)."""

    def __init__(self, shard: Shard, layer: LayerConfig, group: ParallelGroup) -> None:
        super().__init__()
        config = shard.config
        self.input_layernorm = make_norm(config)
        self.self_attn = make_attention(shard, layer, group)
        self.post_attention_layernorm = make_norm(config)
        self.mlp = make_mlp(shard, layer, group)

    def forward(
        self, x: torch.Tensor, added: Added, cos_sin: CosSin, cache: KVCache, attend: StepAttention
    ) -> tuple[torch.Tensor, Added]:
        attended = self.self_attn(self.input_layernorm(x, added), cos_sin, cache, attend)
        return x, self.mlp(self.post_attention_layernorm(x, attended))


class SandwichLayer(nn.Module):
    """Layer that normalizes before and after attention, and before and after the MLP (Gemma 2)."""

    def __init__(self, shard: Shard, layer: LayerConfig, group: ParallelGroup) -> None:
        super().__init__()
        config = shard.config
        self.input_layernorm = make_norm(config)
        self.self_attn = make_attention(shard, layer, group)
        self.post_attention_layernorm = make_norm(config)
        self.pre_feedforward_layernorm = make_norm(config)
        self.mlp = make_mlp(shard, layer, group)
        self.post_feedforward_layernorm = make_norm(config)

    def forward(
        self, x: torch.Tensor, added: Added, cos_sin: CosSin, cache: KVCache, attend: StepAttention
    ) -> tuple[torch.Tensor, Added]:
        attended = self.self_attn(self.input_layernorm(x, added), cos_sin, cache, attend)
        normed = self.pre_feedforward_layernorm(x, self.post_attention_layernorm(attended))
        return x, self.post_feedforward_layernorm(self.mlp(normed))


class ParallelLayer(nn.Module):
    """Layer whose attention and MLP both read the same normalized input (Phi)."""

    def __init__(self, shard: Shard, layer: LayerConfig, group: ParallelGroup) -> None:
        super().__init__()
        config = shard.config
        self.input_layernorm = make_norm(config)
        self.self_attn = make_attention(shard, layer, group)
        self.mlp = make_mlp(shard, layer, group)

    def forward(
        self, x: torch.Tensor, added: Added, cos_sin: CosSin, cache: KVCache, attend: StepAttention
    ) -> tuple[torch.Tensor, Added]:
        normed = self.input_layernorm(x, added)
        return x, self.self_attn(normed, cos_sin, cache, attend) + self.mlp(normed)


LAYERS: Mapping[Order, type[PreNormLayer | SandwichLayer | ParallelLayer]] = {
    "pre_norm": PreNormLayer,
    "sandwich": SandwichLayer,
    "parallel": ParallelLayer,
}


class Decoder(nn.Module):
    """Embedding, layers and final norm. Layers of other pipeline stages are empty modules."""

    def __init__(self, shard: Shard, group: ParallelGroup) -> None:
        super().__init__()
        config = shard.config
        make_layer = LAYERS[config.family.order]
        self.layers = nn.ModuleList(
            make_layer(shard, layer, group) if index in shard.layers else nn.Identity()
            for index, layer in enumerate(config.layers)
        )
        if shard.is_first_stage:
            self.embed_tokens = VocabParallelEmbedding(
                shard.vocabulary.local, config.hidden_size, group
            )
            self.norm = make_norm(config)


class DecoderForCausalLM(nn.Module):
    """Decoder with a language-model head.

    Its parameters are created on the meta device, and loaded later; cos and sin tables are real.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        max_positions: int,
        dtype: torch.dtype,
        device: str,
        shard: Shard | None = None,
        group: ParallelGroup = SINGLE_RANK,
    ) -> None:
        """max_positions: size of the cos and sin tables. shard: the rank's part of the model; None:
        all of it."""
        super().__init__()
        self.shard = shard = shard or unsharded(config)
        with torch.device("meta"):
            self.model = Decoder(shard, group)
            if shard.is_first_stage and not config.tie_word_embeddings:
                self.lm_head = Linear(
                    config.hidden_size, len(shard.vocabulary), bias="lm_head" in config.biases
                )
        self._group = group
        self._vocabulary_widths = [
            len(split_evenly(config.vocab_size, rank, group.size)) for rank in range(group.size)
        ]
        ropes = [config.ropes[index] for index in shard.layers]
        self._rotaries = Rotaries(ropes, max_positions=max_positions, dtype=dtype, device=device)
        # Rounded to dtype, because Gemma 3 was trained with 55.5 instead of 55.4256.
        scale = torch.tensor(config.hidden_size**0.5, dtype=dtype, device="cpu").item()
        self._embedding_scale = scale if config.family.scales_embedding else None

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attend: StepAttention,
        caches: Sequence[KVCache],
        received: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute the rank's layers. Returns hidden states [tokens, hidden_size].

        token_ids, positions: int64 [tokens]. caches: one for each layer of the rank. received: hidden
        states of the previous pipeline stage; None in the first stage.
        """
        x = self.embed(token_ids) if received is None else received
        added: torch.Tensor | None = None
        rotations = self._rotaries(positions)
        for index, cos_sin, cache in zip(self.shard.layers, rotations, caches, strict=True):
            x, added = self.model.layers[index](x, added, cos_sin, cache, attend)
        return x if added is None else x.add_(added)

    @property
    def has_fixed_launches(self) -> bool:
        """Whether steps of equal size launch the same kernels, as a CUDA graph needs."""
        experts = (module for module in self.modules() if isinstance(module, Experts))
        return self._group.size == 1 and all(one.has_fixed_launches for one in experts)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Token embeddings. token_ids: int64 [tokens]. Returns [tokens, hidden_size]."""
        x: torch.Tensor = self.model.embed_tokens(token_ids)
        return x if self._embedding_scale is None else x * self._embedding_scale

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [rows, vocab_size], complete on rank 0 of the group. For the first pipeline stage.

        hidden: [rows, hidden_size], output of the last stage for the rows whose logits are needed.
        """
        return self.project(self.normed(hidden))

    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """Apply the final norm. hidden: [rows, hidden_size], output of the last layer."""
        normed: torch.Tensor = self.model.norm(hidden)
        return normed

    def project(self, normed: torch.Tensor) -> torch.Tensor:
        """Logits [rows, vocab_size] of hidden states after the final norm, complete on rank 0."""
        config = self.shard.config
        logits: torch.Tensor = (
            F.linear(normed, self.model.embed_tokens.weight)
            if config.tie_word_embeddings
            else self.lm_head(normed)
        )
        logits = self._group.gather(logits, self._vocabulary_widths)
        if config.logits_softcap is None:
            return logits
        return (logits / config.logits_softcap).tanh() * config.logits_softcap
