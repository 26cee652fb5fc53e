"""Tests of rotary position embeddings against transformers."""

import copy
from typing import Any

import pytest
import torch
import transformers
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb as apply_partly

from penstock_engine.kernels.torch_ops import rotate
from penstock_engine.layers.rotary import Rotary
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.layer import LayerKind

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}


def rotary_of(
    config: ModelConfig, max_positions: int, kind: LayerKind = "full_attention"
) -> Rotary:
    rope = next(
        rope for rope, layer in zip(config.ropes, config.layers, strict=True) if layer.kind == kind
    )
    return Rotary(
        rope.rope_type, rope.parameters, rotary_dim=rope.rotary_dim, theta=rope.theta,
        max_positions=max_positions, dtype=torch.float32, device="cpu",
    )  # fmt: skip


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
    cos_sin = rotary_of(config, 512)(positions)
    rotated_q, rotated_k = rotate(q, k, *cos_sin)
    torch.testing.assert_close(rotated_q, expected_q, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(rotated_k, expected_k, atol=2e-5, rtol=1e-5)


LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.0 + i / 8 for i in range(12)],
    "long_factor": [2.0 + i for i in range(12)],
}  # fmt: skip


@pytest.mark.parametrize("num_positions", [128, 129, 512])
@pytest.mark.parametrize(
    "rope",
    [{"rope_type": "default"}, LONGROPE, LONGROPE | {"factor": 3.0}, LONGROPE | {"attention_factor": 1.5}],
    ids=["default", "longrope", "factor", "attention factor"],
)  # fmt: skip
def test_a_part_of_each_head_rotates(rope: dict[str, object], num_positions: int) -> None:
    """Short factors apply up to the original length, long factors beyond it."""
    torch.manual_seed(0)
    reference_config = transformers.Phi3Config(
        hidden_size=128, num_attention_heads=4, num_key_value_heads=2, vocab_size=8,
        intermediate_size=8, max_position_embeddings=512, original_max_position_embeddings=128,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.75, **rope},
        architectures=["Phi3ForCausalLM"], pad_token_id=None,
    )  # fmt: skip
    config = ModelConfig.parse(reference_config.to_dict(), {})
    positions = torch.arange(num_positions)
    q, k = torch.randn(num_positions, 4, 32), torch.randn(num_positions, 2, 32)
    cos, sin = Phi3RotaryEmbedding(reference_config)(q, positions[None])
    expected_q, expected_k = apply_partly(q, k, cos[0], sin[0])
    cos_sin = rotary_of(config, num_positions)(positions)
    rotated_q, rotated_k = rotate(q, k, *cos_sin)
    assert torch.equal(rotated_q[..., 24:], q[..., 24:])
    torch.testing.assert_close(rotated_q, expected_q, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(rotated_k, expected_k, atol=2e-5, rtol=1e-5)


SIZES = {
    "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 8,
    "intermediate_size": 8, "num_hidden_layers": 2, "max_position_embeddings": 512, "head_dim": 32,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LINEAR = {"rope_type": "linear", "factor": 2.0}
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
BY_KIND = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": DEFAULT,
}


def without_type(parameters: dict[str, Any]) -> dict[str, Any]:
    """The same parameters with the older name of rope_type."""
    return {"type" if key == "rope_type" else key: value for key, value in parameters.items()}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"rope_theta": 5e5},
        {"rope_scaling": None, "rope_parameters": None},
        {"rope_scaling": LINEAR},
        {"rope_scaling": without_type(YARN), "rope_theta": 5e5},
        {"rope_parameters": LINEAR},
        {"rope_parameters": YARN | {"rope_theta": 5e5}},
        {"rope_parameters": YARN, "rope_theta": 5e5},
        {"rope_parameters": DEFAULT | {"rope_theta": 5e5}, "rope_theta": 3e5},
        {"rope_parameters": DEFAULT, "rope_scaling": YARN},
        {"rope_parameters": DEFAULT, "rope_scaling": without_type(YARN)},
        {"rope_parameters": DEFAULT, "rope_scaling": YARN | {"rope_theta": 5e5}},
        {"rope_parameters": YARN | DEFAULT | LINEAR, "rope_scaling": YARN},
        {"rope_parameters": YARN, "rope_scaling": LINEAR},
        {"rope_parameters": YARN, "rope_scaling": {}},
        {"rope_parameters": LINEAR, "rope_scaling": {"rope_type": "default"}},
    ],
    ids=str,
)
def test_each_spelling_of_rope_is_read_as_by_transformers(keys: dict[str, Any]) -> None:
    raw = SIZES | keys
    reference_config = transformers.LlamaConfig.from_dict(copy.deepcopy(raw))
    config = ModelConfig.parse(raw | {"architectures": ["LlamaForCausalLM"]}, {})
    positions = torch.arange(512)
    cos, sin = LlamaRotaryEmbedding(reference_config)(torch.zeros(1), positions[None])
    own_cos, own_sin = rotary_of(config, 512)(positions)
    torch.testing.assert_close(own_cos[:, 0], cos[0], atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(own_sin[:, 0, 16:], sin[0, :, 16:], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"rope_theta": 5e5, "rope_local_base_freq": 2e4},
        {"rope_scaling": LINEAR},
        {"rope_scaling": LINEAR, "rope_theta": 5e5, "rope_local_base_freq": 2e4},
        {"rope_parameters": BY_KIND},
        {"rope_parameters": {"full_attention": BY_KIND["full_attention"]}},
        {"rope_parameters": BY_KIND, "rope_scaling": LINEAR},
        {"rope_parameters": BY_KIND, "rope_scaling": {"rope_type": "default"}},
    ],
    ids=str,
)
def test_each_spelling_of_rope_by_kind_is_read_as_by_transformers(keys: dict[str, Any]) -> None:
    raw = SIZES | {"layer_types": ["full_attention", "sliding_attention"]} | keys
    reference_config = transformers.Gemma3TextConfig.from_dict(copy.deepcopy(raw))
    config = ModelConfig.parse(raw | {"architectures": ["Gemma3ForCausalLM"]}, {})
    positions = torch.arange(512)
    rotary = Gemma3RotaryEmbedding(reference_config)
    kinds: tuple[LayerKind, ...] = ("full_attention", "sliding_attention")
    for kind in kinds:
        cos, _ = rotary(torch.zeros(1), positions[None], kind)
        own_cos, _ = rotary_of(config, 512, kind)(positions)
        torch.testing.assert_close(own_cos[:, 0], cos[0], atol=2e-5, rtol=1e-5)


def test_scaling_that_is_added_to_a_config_keeps_its_theta() -> None:
    """transformers would fall back to 10000, with which no such model was trained."""
    raw = SIZES | {"rope_parameters": DEFAULT | {"rope_theta": 1e6}, "rope_scaling": YARN}
    rope = ModelConfig.parse(raw | {"architectures": ["LlamaForCausalLM"]}, {}).ropes[0]
    assert (rope.rope_type, rope.theta) == ("yarn", 1e6)
