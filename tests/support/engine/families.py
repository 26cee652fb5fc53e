"""Builds small random models of each family that the engine serves."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

VOCAB_SIZE = 512


@dataclass(frozen=True, slots=True)
class Family:
    """Small random model. config: sizes that exercise the features of its family.

    shortest: minimum prompt tokens. shard: largest file of its checkpoint.
    """

    name: str
    config: dict[str, Any]
    shortest: int = 1
    shard: str = "1GB"

    def make(self, directory: Path) -> None:
        config_name = "Gemma3Text" if self.name == "Gemma3" else self.name
        config = getattr(transformers, f"{config_name}Config")(
            **{
                "vocab_size": VOCAB_SIZE, "hidden_size": 64, "intermediate_size": 160,
                "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 4096, "initializer_range": 0.15,
                "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, **self.config,
            }
        )  # fmt: skip
        model = getattr(transformers, f"{self.name}ForCausalLM")(config)
        randomize(model)
        model.save_pretrained(directory, max_shard_size=self.shard)

    def load(self, directory: Path, dtype: str) -> transformers.PreTrainedModel:
        architecture = getattr(transformers, f"{self.name}ForCausalLM")
        model: transformers.PreTrainedModel = architecture.from_pretrained(directory, dtype=dtype)
        model.eval()  # type: ignore[no-untyped-call]
        return model


def randomize(model: transformers.PreTrainedModel) -> None:
    """Randomize weights whose initial values would hide faults.

    Biases start as 0 and norms as 1, so a missing one would not show. A tied embedding, scaled up as in
    Gemma, would repeat its input. A router with near ties would choose another expert at every rounding.
    """
    if model.config.tie_word_embeddings:
        embeddings: Any = model.get_input_embeddings()
        embeddings.weight.data *= 0.25
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
        elif "norm" in name:
            parameter.data += torch.randn_like(parameter) * 0.2
        elif name.endswith("mlp.gate.weight"):
            parameter.data *= 4


LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 512,
}  # fmt: skip
PHI3 = {
    "partial_rotary_factor": 0.75, "hidden_size": 128,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "short_factor": [1 + i / 20 for i in range(12)], "long_factor": [2 + i for i in range(12)],
    },
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    "llama": Family(
        "Llama",
        {"num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True,
         "rope_parameters": LLAMA3},
        shard="300KB",
    ),
    "qwen2": Family(
        "Qwen2", {"use_sliding_window": True, "sliding_window": 50, "max_window_layers": 1}
    ),
    "qwen3": Family(
        "Qwen3", {"num_attention_heads": 6, "head_dim": 32, "tie_word_embeddings": True}
    ),
    "mistral": Family("Mistral", {"sliding_window": 40, "head_dim": 32}),
    "gemma": Family("Gemma", {"num_key_value_heads": 1, "head_dim": 32}),
    "gemma2": Family(
        "Gemma2",
        {"head_dim": 32, "sliding_window": 40, "query_pre_attn_scalar": 20,
         "attn_logit_softcapping": 2.0, "final_logit_softcapping": 2.0},
    ),
    "gemma3": Family(
        "Gemma3",
        {"head_dim": 32, "sliding_window": 40, "query_pre_attn_scalar": 20,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
         "rope_parameters": {
             "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
         }},
    ),
    "phi": Family("Phi", {"num_key_value_heads": 4}),
    "phi3": Family("Phi3", {"sliding_window": 60, "original_max_position_embeddings": 2048} | PHI3),
    # transformers uses the long rotary factors from token 17 on, the engine from the first token.
    "phi3-long": Family("Phi3", {"original_max_position_embeddings": 16} | PHI3, shortest=17),
    "mixtral": Family("Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2}),
    "qwen3-moe": Family(
        "Qwen3Moe",
        {"num_local_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
         "mlp_only_layers": [1]},
    ),
}  # fmt: skip
