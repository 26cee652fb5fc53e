"""The head that drafts from a model's own hidden states, in the form of EAGLE.

    embedded token, hidden state before it -> fc -> one decoder layer -> hidden state -> model's head

After EAGLE (Li et al., 2024, arXiv 2401.15077): the layer is one of Llama's without its first norm,
embedding and head are the large model's, and what comes out is a guess at the large model's next
normed hidden state, from which the next guess is made. Parameters carry the names of the authors'
checkpoints: fc.weight, fc.bias where there is one, layers.0.*.
"""

from collections.abc import Sequence

import torch
from torch import nn

from penstock_engine.layers.attention import StepAttention
from penstock_engine.layers.group import ALONE
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.linear import Linear
from penstock_engine.layers.rotary import Rotary
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM, PreNormLayer
from penstock_engine.models.shard import whole


class NoNorm(nn.Module):
    """In the place of the first norm, to which nothing is added yet."""

    def forward(self, x: torch.Tensor, added: torch.Tensor | None) -> torch.Tensor:
        assert added is None
        return x


class DraftHeadDecoder(nn.Module):
    """Built on the meta device, then given its weights; the rotation is real from the start."""

    has_fixed_launches = False

    def __init__(
        self, config: ModelConfig, target: DecoderForCausalLM, *, has_bias: bool,
        max_positions: int, dtype: torch.dtype, device: str,
    ) -> None:  # fmt: skip
        """config: of the head, whose layers are its own. has_bias: of fc."""
        super().__init__()
        self.shard = whole(config)
        with torch.device("meta"):
            self.fc = Linear(2 * config.hidden_size, config.hidden_size, bias=has_bias)
            self.layers = nn.ModuleList(
                PreNormLayer(self.shard, layer, ALONE) for layer in config.layers
            )
        self.layers[0].input_layernorm = NoNorm()
        self._target = (target,)  # not a part of this module: it has its weights already
        [rope] = {layer.kind: config.ropes[layer.kind] for layer in config.layers}.values()
        self._rotary = Rotary(
            rope.rope_type, rope.parameters, rotary_dim=rope.rotary_dim, theta=rope.theta,
            max_positions=max_positions, dtype=dtype, device=device,
        )  # fmt: skip

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attend: StepAttention,
        caches: Sequence[KVCache],
        received: torch.Tensor,
    ) -> torch.Tensor:
        """token_ids: int64 [tokens], of each position the token behind it. received: [tokens,
        hidden_size], its hidden state. Returns guesses at the next ones, [tokens, hidden_size]."""
        x = self.fc(torch.cat((self._target[0].embed(token_ids), received), -1))
        added: torch.Tensor | None = None
        cos_sin = self._rotary(positions)
        for layer, cache in zip(self.layers, caches, strict=True):
            x, added = layer(x, added, cos_sin, cache, attend)
        hidden: torch.Tensor = x if added is None else x.add_(added)
        return hidden

    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden: [rows, hidden_size]. It guesses normed states, so they are what they are."""
        return hidden

    def embeddings(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden: [rows, hidden_size]. Returns float32 of the same shape."""
        return hidden.float()

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden: [rows, hidden_size]. Returns [rows, vocabulary]."""
        return self._target[0].project(hidden)
