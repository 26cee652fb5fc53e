"""Registry of the supported model families.

All are decoders: embedding, layers of attention and MLP, a final norm, a head. decoder.py builds
them from a family's entry and config.json. To add a family:

1. Add its entry below: its name in `architectures` of config.json, and its differences from Llama.
   `defaults` are the values of its configuration class in transformers for keys of config.json that a
   checkpoint may leave out.
2. Add a small random model of it to tests/support/engine/families.py, with which
   benchmarks/engine/greedy_equality.py compares the engine with transformers token for token.

If a family needs a part that no other has (another norm, another order within a layer), add that
part to layers/ or decoder.py, and a name for it here. Another kind of attention is a class in
attention.py and a module in attention_modules.py. If a family is built altogether differently, add a
module beside decoder.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Norm = Literal["rms", "rms_plus_one", "layer"]
Order = Literal["pre_norm", "sandwich", "parallel"]
Mlp = Literal["gated", "plain", "experts"]
Biased = Literal["qkv_proj", "o_proj", "mlp", "lm_head"]

# Keys that say which layers have a sliding window, in configs without layer_types.
WINDOW_KEYS = (
    "sliding_window", "use_sliding_window", "max_window_layers", "sliding_window_pattern",
)  # fmt: skip
# Keys that say which products add a bias, in families that have it both ways.
BIAS_KEYS: Mapping[str, tuple[Biased, ...]] = {
    "attention_bias": ("qkv_proj", "o_proj"), "mlp_bias": ("mlp",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Family:
    """Architecture of a model family, as far as config.json does not describe it."""

    norm: Norm = "rms"
    """Kind of normalization. rms_plus_one: weights are stored as their difference from 1."""

    order: Order = "pre_norm"
    """Order within a layer. pre_norm: attention and MLP each add f(norm(x)) to x. sandwich: each adds
    norm(f(norm(x))). parallel: both read the same norm(x)."""

    mlp: Mlp = "gated"
    """Kind of MLP. gated: down(activation(gate(x)) * up(x)). plain: down(activation(up(x))).
    experts: gated, with a router that selects a few of many for each token."""

    qk_norm: bool = False
    """Whether the queries and keys of each head are normalized before the rotary embedding."""

    scales_embedding: bool = False
    """Whether token embeddings are multiplied by the square root of the hidden size."""

    biases: tuple[Biased, ...] = ()
    """Products that add a bias, in addition to those that keys of BIAS_KEYS request."""

    is_packed: bool = False
    """Whether projections with the same input are one matrix in its checkpoints, as in the model."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Parts of parameter names that differ from Llama's: Llama's part -> the family's part."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of keys that are absent in config.json. As in transformers, a family ignores keys of
    WINDOW_KEYS and BIAS_KEYS, and partial_rotary_factor, that have no default here."""


QWEN_WINDOW = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
ATTENTION_BIAS = {"attention_bias": False}
GEMMA = {
    "hidden_act": "gelu_pytorch_tanh", "head_dim": 256, "tie_word_embeddings": True, **ATTENTION_BIAS,
}  # fmt: skip
GEMMA_WINDOW = {"query_pre_attn_scalar": 256, "sliding_window": 4096}

FAMILIES: Mapping[str, Family] = {
    "LlamaForCausalLM": Family(defaults={**ATTENTION_BIAS, "mlp_bias": False}),
    "MistralForCausalLM": Family(defaults={"sliding_window": 4096}),
    "Qwen2ForCausalLM": Family(biases=("qkv_proj",), defaults=QWEN_WINDOW),
    "Qwen3ForCausalLM": Family(
        qk_norm=True, defaults={"head_dim": 128, **QWEN_WINDOW, **ATTENTION_BIAS}
    ),
    "Qwen3MoeForCausalLM": Family(
        qk_norm=True,
        mlp="experts",
        defaults={
            **ATTENTION_BIAS,
            "use_sliding_window": False,
            "sliding_window": 4096,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
    ),
    "MixtralForCausalLM": Family(
        mlp="experts",
        names={"mlp": "block_sparse_moe", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
        defaults={
            "rms_norm_eps": 1e-5,
            "rope_theta": 1e6,
            "sliding_window": None,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
        },
    ),
    "GemmaForCausalLM": Family(norm="rms_plus_one", scales_embedding=True, defaults=GEMMA),
    "Gemma2ForCausalLM": Family(
        norm="rms_plus_one",
        order="sandwich",
        scales_embedding=True,
        defaults={
            **GEMMA,
            **GEMMA_WINDOW,
            "sliding_window_pattern": 2,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "Gemma3ForCausalLM": Family(
        norm="rms_plus_one",
        order="sandwich",
        qk_norm=True,
        scales_embedding=True,
        defaults={
            **GEMMA,
            **GEMMA_WINDOW,
            "sliding_window_pattern": 6,
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
        },
    ),
    "Phi3ForCausalLM": Family(
        is_packed=True,
        defaults={
            "rms_norm_eps": 1e-5,
            "sliding_window": None,
            "partial_rotary_factor": 1.0,
            "original_max_position_embeddings": 4096,
        },
    ),
    "PhiForCausalLM": Family(
        norm="layer",
        order="parallel",
        mlp="plain",
        biases=("qkv_proj", "o_proj", "mlp", "lm_head"),
        names={"o_proj": "dense", "up_proj": "fc1", "down_proj": "fc2", "norm": "final_layernorm"},
        defaults={"hidden_act": "gelu_new", "partial_rotary_factor": 0.5},
    ),
}
