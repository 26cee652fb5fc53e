import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from penstock_engine.layers.rotary import Rotary, rotate
from penstock_engine.models.config import ModelConfig

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default"},
        {"rope_type": "default", "rope_theta": 1e6},
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "llama3", "factor": 8.0, **LLAMA3},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
        {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128,
            "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 0.8, "truncate": False,
        },
        {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128,
            "mscale": 1.0, "mscale_all_dim": 0.8,
        },
    ],
    ids=lambda rope: rope["rope_type"],
)  # fmt: skip
def test_rotations_equal_those_of_transformers(rope: dict[str, object]) -> None:
    """Queries and keys at every position the model was made for."""
    torch.manual_seed(0)
    reference_config = transformers.LlamaConfig(
        hidden_size=128, num_attention_heads=4, num_key_value_heads=2, vocab_size=8,
        intermediate_size=8, max_position_embeddings=512,
        rope_parameters={"rope_theta": 10000.0, **rope},
        architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    config = ModelConfig.parse(reference_config.to_dict(), {})
    positions = torch.arange(512)
    q, k = torch.randn(512, 4, 32), torch.randn(512, 2, 32)
    cos, sin = LlamaRotaryEmbedding(reference_config)(q, positions[None])
    expected_q, expected_k = apply_rotary_pos_emb(q, k, cos[0], sin[0])
    rotary = Rotary(
        config.rope.rope_type, config.rope.parameters, head_dim=config.head_dim,
        theta=config.rope.theta, max_positions=512, dtype=torch.float32, device="cpu",
    )  # fmt: skip
    cos_sin = rotary(positions)
    torch.testing.assert_close(rotate(q, *cos_sin), expected_q, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(rotate(k, *cos_sin), expected_k, atol=2e-5, rtol=1e-5)
