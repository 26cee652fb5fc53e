"""EAGLE draft head: drafts tokens from the target model's hidden states.

    embedded token, hidden state before it -> fc -> one decoder layer -> hidden state -> target's head

After EAGLE (Li et al., 2024, arXiv 2401.15077): the layer is a Llama layer without its first norm, and
embedding and head are the target model's. The output predicts the target's next hidden state (after
the final norm), and is the input for the next draft. Parameters have the names of the authors'
checkpoints: fc.weight, optionally fc.bias, layers.0.*.
"""

from collections.abc import Sequence

import torch
from torch import nn

from penstock_engine.layers.attention import StepAttention
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.linear import Linear
from penstock_engine.layers.parallel_group import SINGLE_RANK
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM, PreNormLayer
from penstock_engine.models.rotaries import Rotaries
from penstock_engine.models.shard import unsharded


class IdentityNorm(nn.Module):
    """Returns its input: replaces the first norm of the layer, which EAGLE omits."""

    def forward(self, x: torch.Tensor, added: torch.Tensor | None) -> torch.Tensor:
        assert added is None
        return x


class DraftHeadDecoder(nn.Module):
    """Decoder of an EAGLE head.

    Its parameters are created on the meta device, and loaded later; cos and sin tables are real.
    """

    has_fixed_launches = False

    def __init__(
        self, config: ModelConfig, target: DecoderForCausalLM, *, has_bias: bool,
        max_positions: int, dtype: torch.dtype, device: str,
    ) -> None:  # fmt: skip
        """config: of the head, with only the head's layers. target: the model that verifies the
        drafts. has_bias: whether fc has a bias."""
        super().__init__()
        self.shard = unsharded(config)
        with torch.device("meta"):
            self.fc = Linear(2 * config.hidden_size, config.hidden_size, bias=has_bias)
            self.layers = nn.ModuleList(
                PreNormLayer(self.shard, layer, SINGLE_RANK) for layer in config.layers
            )
        self.layers[0].input_layernorm = IdentityNorm()
        self._target = (target,)  # in a tuple, so that it does not become a submodule
        self._rotaries = Rotaries(
            config.ropes, max_positions=max_positions, dtype=dtype, device=device
        )

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attend: StepAttention,
        caches: Sequence[KVCache],
        received: torch.Tensor,
    ) -> torch.Tensor:
        """Predict the next hidden states, [tokens, hidden_size].

        token_ids: int64 [tokens], the token after each position. received: [tokens, hidden_size], the
        hidden state of each position.
        """
        x = self.fc(torch.cat((self._target[0].embed(token_ids), received), -1))
        added: torch.Tensor | None = None
        rotations = self._rotaries(positions)
        for layer, cos_sin, cache in zip(self.layers, rotations, caches, strict=True):
            x, added = layer(x, added, cos_sin, cache, attend)
        hidden: torch.Tensor = x if added is None else x.add_(added)
        return hidden

    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return hidden: [rows, hidden_size] unchanged, because the head predicts normalized states."""
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [rows, vocab_size] from the target's head. hidden: [rows, hidden_size]."""
        return self._target[0].project(hidden)
