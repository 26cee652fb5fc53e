"""Tests of model configs: read as transformers reads them, or refused with a reason."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers

from penstock_engine.core.errors import ModelError
from penstock_engine.models.attention import GroupedQueryAttention
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.registry import FAMILIES
from penstock_engine.models.shard import unsharded

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1000,
    "eos_token_id": 7,
}


def test_a_plain_config() -> None:
    config = ModelConfig.parse(CONFIG, {"eos_token_id": [8, 9]})
    assert [layer.attention for layer in config.layers] == [
        GroupedQueryAttention(
            num_heads=4,
            num_kv_heads=2,
            head_dim=32,
            hidden_size=64,
            has_qk_norm=True,
            scale=32**-0.5,
            softcap=None,
        )
    ] * 2
    assert config.eos_token_ids == {7, 8, 9}
    assert unsharded(config).kv_block_bytes(1, 2) == 2 * 2 * 2 * 32 * 2


# Published models, abridged: what their config.json says beside sizes.
PUBLISHED: dict[str, dict[str, Any]] = {
    "Llama-3.2-1B": {
        "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3",
        },
        "attention_bias": False, "mlp_bias": False, "pretraining_tp": 1, "tie_word_embeddings": True,
    },
    "Mistral-7B-v0.1": {
        "architectures": ["MistralForCausalLM"], "sliding_window": 4096, "rope_theta": 10000.0,
    },
    "Mistral-7B-v0.2": {
        "architectures": ["MistralForCausalLM"], "sliding_window": None, "rope_theta": 1e6,
    },
    "Qwen2.5-0.5B": {
        "architectures": ["Qwen2ForCausalLM"], "rope_theta": 1e6, "sliding_window": 32768,
        "max_window_layers": 24, "use_sliding_window": False, "tie_word_embeddings": True,
    },
    "Qwen2-windowed": {
        "architectures": ["Qwen2ForCausalLM"], "rope_theta": 1e6, "sliding_window": 64,
        "max_window_layers": 5, "use_sliding_window": True, "tie_word_embeddings": False,
    },
    "Qwen3-30B-A3B": {
        "architectures": ["Qwen3MoeForCausalLM"], "decoder_sparse_step": 1, "mlp_only_layers": [],
        "max_window_layers": 48, "moe_intermediate_size": 96, "norm_topk_prob": True,
        "num_experts": 16, "num_experts_per_tok": 8, "sliding_window": None, "rope_theta": 1e6,
        "use_sliding_window": False, "attention_bias": False, "head_dim": 32,
    },
    "Qwen3-MoE-windowed": {
        "architectures": ["Qwen3MoeForCausalLM"], "max_window_layers": 5, "sliding_window": 64,
        "num_experts": 16, "use_sliding_window": True, "head_dim": 32,
    },
    "Mixtral-8x7B": {
        "architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2,
        "sliding_window": None, "rope_theta": 1e6, "rms_norm_eps": 1e-05,
    },
    "gemma-2b": {
        "architectures": ["GemmaForCausalLM"], "hidden_act": "gelu", "head_dim": 16,
        "num_key_value_heads": 1, "rope_theta": 10000.0,
    },
    "gemma-2-2b": {
        "architectures": ["Gemma2ForCausalLM"], "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 224, "sliding_window": 4096,
        "head_dim": 16, "rope_theta": 10000.0,
    },
    "gemma-3-1b": {
        "architectures": ["Gemma3ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh",
        "attn_logit_softcapping": None, "final_logit_softcapping": None, "head_dim": 16,
        "query_pre_attn_scalar": 256, "sliding_window": 512, "sliding_window_pattern": 6,
        "rope_theta": 1000000, "rope_local_base_freq": 10000, "rope_scaling": None,
    },
    "gemma-3-scaled": {
        "architectures": ["Gemma3ForCausalLM"], "head_dim": 16, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
    "phi-2": {
        "architectures": ["PhiForCausalLM"], "hidden_act": "gelu_new", "layer_norm_eps": 1e-05,
        "partial_rotary_factor": 0.5, "qk_layernorm": False, "rope_scaling": None,
        "rope_theta": 10000.0, "tie_word_embeddings": False,
    },
    "Phi-3-mini-4k": {
        "architectures": ["Phi3ForCausalLM"], "sliding_window": 2047, "rope_scaling": None,
        "original_max_position_embeddings": 4096, "rope_theta": 10000.0, "rms_norm_eps": 1e-05,
        "pad_token_id": 0, "auto_map": {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
    },
    "Phi-4-mini": {
        "architectures": ["Phi3ForCausalLM"], "sliding_window": 262144, "rope_theta": 10000.0,
        "original_max_position_embeddings": 400, "partial_rotary_factor": 0.75, "pad_token_id": 0,
        "rope_scaling": {"type": "longrope", "short_factor": [1] * 6, "long_factor": [1.2] * 6},
        "tie_word_embeddings": True,
    },
}  # fmt: skip

SIZES: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 12,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1000,
    "eos_token_id": 7,
}  # fmt: skip


def as_transformers_reads_it(raw: dict[str, Any]) -> ModelConfig:
    """Every key that transformers knows, with the value that it takes for this config.json."""
    architecture = raw["architectures"][0]
    name = architecture.replace("Gemma3For", "Gemma3TextFor").removesuffix("ForCausalLM")
    reference = getattr(transformers, f"{name}Config")(**copy.deepcopy(raw))
    return ModelConfig.parse(reference.to_dict() | {"architectures": [architecture]}, {})


def without_spelling(config: ModelConfig) -> ModelConfig:
    """Fields that are kept as config.json spells them, without a meaning of their own."""
    ropes = tuple(replace(rope, parameters={}) for rope in config.ropes)
    return replace(config, model_type="", ropes=ropes)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_are_read_as_transformers_reads_them(name: str) -> None:
    raw = SIZES | PUBLISHED[name]
    ours, theirs = ModelConfig.parse(raw, {}), as_transformers_reads_it(raw)
    assert without_spelling(ours) == without_spelling(theirs)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_absent_keys_mean_what_they_mean_to_transformers(architecture: str) -> None:
    raw = SIZES | {"architectures": [architecture]}
    if architecture == "Phi3ForCausalLM":
        raw |= {"pad_token_id": 0}  # transformers' own default is beyond this vocabulary
    ours, theirs = ModelConfig.parse(raw, {}), as_transformers_reads_it(raw)
    assert without_spelling(ours) == without_spelling(theirs)


def test_windows_by_layer() -> None:
    def windows(name: str) -> list[int | None]:
        config = ModelConfig.parse(SIZES | PUBLISHED[name], {})
        return [layer.window_tokens for layer in config.layers]

    assert windows("Llama-3.2-1B") == windows("Mistral-7B-v0.2") == windows("Qwen2.5-0.5B")
    assert windows("Llama-3.2-1B") == [None] * 12
    assert windows("Mistral-7B-v0.1") == [4096] * 12
    assert windows("Qwen2-windowed") == [None] * 5 + [64] * 7
    assert windows("gemma-2-2b") == [4096, None] * 6
    assert windows("gemma-3-1b") == ([512] * 5 + [None]) * 2


def test_gemma_3_rotates_by_kind_of_layer() -> None:
    sliding, *others, full = ModelConfig.parse(SIZES | PUBLISHED["gemma-3-scaled"], {}).ropes
    assert others == [*[sliding] * 4, full, *[sliding] * 5]
    assert (full.rope_type, full.theta, full.parameters["factor"]) == ("linear", 1e6, 8.0)
    assert (sliding.rope_type, sliding.theta) == ("default", 1e4)


def test_experts_by_layer() -> None:
    raw = SIZES | PUBLISHED["Qwen3-30B-A3B"] | {"decoder_sparse_step": 3, "mlp_only_layers": [5]}
    config = ModelConfig.parse(raw, {})
    assert [i for i, layer in enumerate(config.layers) if layer.has_experts] == [2, 8, 11]
    assert config.widest_intermediate_size == 8 * 96


@pytest.mark.parametrize(
    ("rope", "max_model_len"),
    [
        ({"rope_scaling": None, "rope_theta": 5e5}, 1000),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 2000),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 1000),
        (
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 4,
                    "original_max_position_embeddings": 500,
                }
            },
            2000,
        ),
    ],
    ids=["default", "linear", "dynamic", "yarn"],
)
def test_old_and_new_spellings_of_rope(rope: dict[str, Any], max_model_len: int) -> None:
    assert ModelConfig.parse({**CONFIG, **rope}, {}).max_model_len == max_model_len


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "UnsupportedArchitecture", "MambaForCausalLM"),
        ({"architectures": None}, "UnsupportedArchitecture", "names no architectures; supported"),
        ({"hidden_size": "64"}, "BadConfig", "hidden_size"),
        ({"num_hidden_layers": 0}, "BadConfig", "num_hidden_layers"),
        ({"num_hidden_layers": 10**12}, "BadConfig", "at most 1000"),
        ({"vocab_size": None}, "BadConfig", "vocab_size"),
        ({"num_key_value_heads": 3}, "BadConfig", "multiple"),
        ({"head_dim": 31}, "BadConfig", "even"),
        ({"hidden_act": "relu"}, "BadConfig", "relu"),
        ({"architectures": [["LlamaForCausalLM"]]}, "UnsupportedArchitecture", "Llama"),
        ({"quantization_config": {"quant_method": "new"}}, "UnsupportedQuantization", "new"),
        ({"quantization_config": {"bits": 4}}, "UnsupportedQuantization", "has no quant_method"),
        ({"use_bidirectional_attention": True}, "BadConfig", "use_bidirectional_attention"),
        ({"qk_layernorm": True}, "BadConfig", "qk_layernorm"),
        ({"layer_types": ["full_attention"]}, "BadConfig", "2 layers"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "BadConfig", "chunked"),
        ({"layer_types": [["full_attention"], {}]}, "BadConfig", "full_attention"),
        ({"layer_types": ["full_attention", {}]}, "BadConfig", "{}"),
        (
            {"layer_types": ["sliding_attention"] * 2, "sliding_window": None},
            "BadConfig",
            "sliding_window is not set",
        ),
        (
            {"sliding_window": 0, "use_sliding_window": True, "max_window_layers": 1},
            "BadConfig",
            "at least 1",
        ),
        ({"max_window_layers": -1, "use_sliding_window": True}, "BadConfig", "max_window_layers"),
        (
            {"architectures": ["PhiForCausalLM"], "tie_word_embeddings": True},
            "BadConfig",
            "tie_word_embeddings",
        ),
        ({"attn_logit_softcapping": -1.0}, "BadConfig", "attn_logit_softcapping"),
        ({"mlp_only_layers": 3}, "BadConfig", "mlp_only_layers"),
        ({"architectures": ["MixtralForCausalLM"], "num_experts_per_tok": 9}, "BadConfig", "more"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "BadConfig", "short_factor"),
        (
            {"rope_scaling": {"type": "su", "short_factor": [1.0] * 16, "long_factor": [1.0] * 15}},
            "BadConfig",
            "list of 16 positive numbers",
        ),
        ({"rope_scaling": {"rope_type": "proportional"}}, "BadConfig", "proportional"),
        ({"rope_scaling": {"rope_type": ["linear"]}}, "BadConfig", "linear"),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": "x"}},
            "BadConfig",
            "beta_fast",
        ),
        ({"rope_scaling": {"rope_type": "linear"}}, "BadConfig", "factor"),
        ({"rope_scaling": {"factor": 4.0}}, "BadConfig", "a factor, but no rope_type"),
        ({"rope_scaling": [1]}, "BadConfig", "rope_scaling"),
        ({"rope_parameters": {"full_attention": [1]}}, "BadConfig", "full_attention"),
        ({"partial_rotary_factor": 0.5}, "BadConfig", "partial_rotary_factor"),
        ({"eos_token_id": "</s>"}, "BadConfig", "eos_token_id"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_served_says_why(changes: dict[str, Any], reason: str, message: str) -> None:
    """A setting that changes the mathematics is refused, not ignored."""
    with pytest.raises(ModelError, match=message) as caught:
        ModelConfig.parse({**CONFIG, **changes}, {})
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (None, "ModelNotFound"),
        ({}, "NotAModel"),
        ({"config.json": "{"}, "BadConfig"),
        ({"config.json": "[]"}, "BadConfig"),
        ({"config.json": json.dumps(CONFIG), "generation_config.json": "{"}, "BadConfig"),
    ],
)
def test_directories_that_are_no_models(
    tmp_path: Path, files: dict[str, str] | None, reason: str
) -> None:
    directory = tmp_path / "model"
    if files is not None:
        directory.mkdir()
        for name, text in files.items():
            (directory / name).write_text(text)
    with pytest.raises(ModelError) as caught:
        ModelConfig.load(directory)
    assert caught.value.reason == reason
    assert str(tmp_path) not in str(caught.value)


# Keys of transformers' configurations that change no answer, and why.
WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("attention_dropout", "embd_pdrop", "resid_pdrop", "initializer_range", "router_jitter_noise",
         "router_aux_loss_coef", "output_router_logits", "pretraining_tp"),
        "only training has it",
    ),
    **dict.fromkeys(
        ("_name_or_path", "dtype", "transformers_version", "problem_type", "id2label", "label2id",
         "return_dict", "use_cache", "output_attentions", "output_hidden_states",
         "chunk_size_feed_forward", "is_encoder_decoder"),
        "says how transformers runs the model, or of what kind it is",
    ),
    "bos_token_id": "the tokenizer decides how a text begins",
    "pad_token_id": "sequences are not padded",
    "_sliding_window_pattern": "layer_types, which it was made from, counts",
}  # fmt: skip
READ = {
    "architectures", "attention_bias", "attn_logit_softcapping", "decoder_sparse_step", "eos_token_id",
    "final_logit_softcapping", "head_dim", "hidden_act", "hidden_activation", "hidden_size",
    "intermediate_size", "layer_norm_eps", "layer_types", "max_position_embeddings",
    "max_window_layers", "mlp_bias", "mlp_only_layers", "model_type", "moe_intermediate_size",
    "norm_topk_prob", "num_attention_heads", "num_experts_per_tok", "num_hidden_layers",
    "num_key_value_heads", "num_local_experts", "original_max_position_embeddings", "qk_layernorm",
    "query_pre_attn_scalar", "rms_norm_eps", "rope_parameters", "sliding_window",
    "tie_word_embeddings", "use_bidirectional_attention", "use_sliding_window", "vocab_size",
}  # fmt: skip


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_key_of_transformers_is_read_refused_or_without_effect(architecture: str) -> None:
    """A key that a newer library adds fails here, before a model with it is served wrongly."""
    name = architecture.replace("Gemma3For", "Gemma3TextFor").removesuffix("ForCausalLM")
    keys = set(getattr(transformers, f"{name}Config")().to_dict())
    assert keys - READ - set(WITHOUT_EFFECT) == set()


def test_biases_are_those_that_transformers_builds() -> None:
    asked = SIZES | {"attention_bias": True, "mlp_bias": True, "head_dim": 16}
    with_bias = {
        architecture: set(ModelConfig.parse(asked | {"architectures": [architecture]}, {}).biases)
        for architecture in FAMILIES
    }
    attention = {"qkv_proj", "o_proj"}
    obeying = ("Qwen3", "Qwen3Moe", "Gemma", "Gemma2", "Gemma3")
    assert with_bias == {
        "LlamaForCausalLM": attention | {"mlp"},
        **{f"{name}ForCausalLM": attention for name in obeying},
        "Qwen2ForCausalLM": {"qkv_proj"},
        **{f"{name}ForCausalLM": set() for name in ("Mistral", "Mixtral", "Phi3")},
        "PhiForCausalLM": attention | {"mlp", "lm_head"},
    }
