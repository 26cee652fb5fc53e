"""Shapes of the models that are measured, as contents of config.json. Imports no torch."""

from typing import Any

# Qwen3-0.6B.
SMALL = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151_936,
    "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 40_960, "rope_theta": 1e6, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}  # fmt: skip
# Llama-3.1-8B.
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128_256,
    "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 131_072, "rope_theta": 5e5, "rms_norm_eps": 1e-5,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": False,
}  # fmt: skip
# Mixture of experts of Qwen3's kind, with 3.0e9 parameters of which a token uses 0.8e9.
EXPERTS = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 151_936,
    "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 384,
    "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": True,
    "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 40_960, "rope_theta": 1e6, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {"0.6b": SMALL, "8b": LLAMA, "moe-3b": EXPERTS}

# Sizes of the small twins; the kinds of the parts stay those of the shape.
SMALLER = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32,
    "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


def config_of(name: str, *, is_small: bool) -> dict[str, Any]:
    """config.json of a shape; is_small: of a twin that Triton's interpreter can compute."""
    config = SHAPES[name]
    if not is_small:
        return dict(config)
    return config | {key: value for key, value in SMALLER.items() if key in config}
