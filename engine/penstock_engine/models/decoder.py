"""The decoder that Llama and Qwen3 share: attention and gated MLP, each behind an RMS norm.

Parameters carry the names of the checkpoints, except where PACKED stacks several into one so that
one product does the work of several.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from penstock_engine.layers.attention import StepAttention
from penstock_engine.layers.linear import Embedding, Linear
from penstock_engine.layers.norm import RMSNorm
from penstock_engine.layers.rotary import Rotary, rotate
from penstock_engine.models.config import ModelConfig

PACKED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}

CosSin = tuple[torch.Tensor, torch.Tensor]


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self._num_heads = config.num_heads
        self._num_kv_heads = config.num_kv_heads
        self._head_dim = config.head_dim
        self._scale = config.head_dim**-0.5
        width = config.num_heads * config.head_dim
        kv_width = config.num_kv_heads * config.head_dim
        bias = config.attention_bias
        self.qkv_proj = Linear(config.hidden_size, width + 2 * kv_width, bias=bias)
        self.o_proj = Linear(width, config.hidden_size, bias=bias)
        if config.qk_norm:
            self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self._has_qk_norm = config.qk_norm

    def forward(
        self, x: torch.Tensor, cos_sin: CosSin, cache: torch.Tensor, attend: StepAttention
    ) -> torch.Tensor:
        num_heads, num_kv_heads = self._num_heads, self._num_kv_heads
        heads = self.qkv_proj(x).view(len(x), -1, self._head_dim)
        q, k, v = heads.split((num_heads, num_kv_heads, num_kv_heads), dim=1)
        if self._has_qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, *cos_sin), rotate(k, *cos_sin)
        mixed = attend(q, k, v, cache, self._scale)
        output: torch.Tensor = self.o_proj(mixed.view(len(x), -1))
        return output


class GatedMLP(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden_size, intermediate_size = config.hidden_size, config.intermediate_size
        self.gate_up_proj = Linear(hidden_size, 2 * intermediate_size, bias=config.mlp_bias)
        self.down_proj = Linear(intermediate_size, hidden_size, bias=config.mlp_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        output: torch.Tensor = self.down_proj(F.silu(gate) * up)
        return output


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(config)

    def forward(
        self, x: torch.Tensor, cos_sin: CosSin, cache: torch.Tensor, attend: StepAttention
    ) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos_sin, cache, attend)
        x = x + self.mlp(self.post_attention_layernorm(x))
        return x


class Decoder(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class DecoderForCausalLM(nn.Module):
    """Built on the meta device, then given its weights; `rotary` alone is real from the start."""

    def __init__(
        self, config: ModelConfig, *, max_positions: int, dtype: torch.dtype, device: str
    ) -> None:
        super().__init__()
        with torch.device("meta"):
            self.model = Decoder(config)
            if not config.tie_word_embeddings:
                self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self._is_tied = config.tie_word_embeddings
        self.rotary = Rotary(
            config.rope.rope_type,
            config.rope.parameters,
            head_dim=config.head_dim,
            theta=config.rope.theta,
            max_positions=max_positions,
            dtype=dtype,
            device=device,
        )

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        caches: Sequence[torch.Tensor],
        attend: StepAttention,
    ) -> torch.Tensor:
        """token_ids, positions: int64 [tokens]. Returns hidden states [tokens, hidden_size]."""
        cos_sin = self.rotary(positions)
        x: torch.Tensor = self.model.embed_tokens(token_ids)
        for layer, cache in zip(self.model.layers, caches, strict=True):
            x = layer(x, cos_sin, cache, attend)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden: [rows, hidden_size], of the sampled tokens only. Returns [rows, vocab_size]."""
        head = self.model.embed_tokens if self._is_tied else self.lm_head
        return F.linear(self.model.norm(hidden), head.weight)
