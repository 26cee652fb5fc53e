"""Translates a GGUF file's metadata to config.json. Imports no torch."""

import math
from collections.abc import Mapping
from typing import Any

from penstock_engine.checkpoints.gguf.file import GgufFile
from penstock_engine.checkpoints.gguf.names import ROPE_FACTORS
from penstock_engine.checkpoints.gguf.special_tokens import end_token_ids
from penstock_engine.core.errors import ModelError

ARCHITECTURES: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
}
KEYS: Mapping[str, str] = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
# Keys of computations that are not implemented, with the values at which they have no effect. llama.cpp
# takes a scale of 0 as one that is not set.
REFUSED: Mapping[str, tuple[Any, ...]] = {
    "expert_count": (0,),
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "attention.output_scale": (0.0, 1.0),
    "attention.temperature_scale": (0.0,),
    "use_parallel_residual": (False,),
    "rope.dimension_sections": ([],),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.yarn_ext_factor": (-1.0, 1.0),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "rope.scaling.alpha": (0.0,),
}
# Keys of lengths that must be head_dim: of values, of the rotated part, and in sliding-window layers.
HEAD_LENGTHS = (
    "attention.value_length", "attention.key_length_swa", "attention.value_length_swa",
    "rope.dimension_count", "rope.dimension_count_swa",
)  # fmt: skip
# Number of layers of Gemma 2 27B and Gemma 3 27B. These divide attention scores by the square root of
# hidden_size / heads instead of head_dim, and GGUF has no key for that.
NUM_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}


def make_config(file: GgufFile) -> dict[str, Any]:
    """Build the contents of config.json. Raises ModelError for a model that cannot be served."""
    if file.architecture not in ARCHITECTURES:
        raise ModelError(
            "UnsupportedArchitecture",
            f"GGUF architecture {file.architecture or 'unknown'} is not supported; supported are "
            f"{', '.join(sorted(ARCHITECTURES))}",
        )
    for key, harmless in REFUSED.items():
        if (value := file.value(key)) is not None and value not in harmless:
            raise _bad(f"{file.architecture}.{key} {value} is not supported")
    try:
        return _translate(file)
    except (TypeError, ArithmeticError, LookupError) as error:
        raise _bad(f"the metadata of {file.path.name} are not those of a model") from error


def _translate(file: GgufFile) -> dict[str, Any]:
    raw = {name: file.value(key) for name, key in KEYS.items() if file.value(key) is not None}
    raw |= {
        "architectures": [ARCHITECTURES[file.architecture]],
        "model_type": file.architecture,
        "vocab_size": _vocab_size(file),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "eos_token_id": end_token_ids(file),
    }
    raw.setdefault("head_dim", _head_dim(raw))
    _check_rotation(file, raw)
    return raw | _windows(file) | _scale(file, raw) | _rope(file)


def _vocab_size(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError("BadWeights", "the file has no tensor token_embd.weight")
    return embedding.shape[0]


def _head_dim(raw: Mapping[str, Any]) -> int | None:
    """Default head dimension, hidden_size / heads. None if one of them is missing, which is an error
    that is reported later."""
    hidden, heads = raw.get("hidden_size"), raw.get("num_attention_heads")
    return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads else None


def _check_rotation(file: GgufFile, raw: Mapping[str, Any]) -> None:
    """Raise ModelError if only a part of each head is rotated, or heads differ in length."""
    for key in HEAD_LENGTHS:
        if file.value(key) not in (None, raw["head_dim"]):
            raise _bad(f"{key} {file.value(key)} is not supported, only {raw['head_dim']}")


def _windows(file: GgufFile) -> dict[str, Any]:
    if not file.architecture.startswith("gemma"):
        return {}
    window = file.value("attention.sliding_window")
    if window is None and file.architecture == "gemma2":
        return {}
    found = {"sliding_window": window or None}
    pattern = file.value("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        kinds = ["sliding_attention" if slides else "full_attention" for slides in pattern]
        return found | {"layer_types": kinds}
    return found if pattern is None else found | {"sliding_window_pattern": pattern}


def _scale(file: GgufFile, raw: Mapping[str, Any]) -> dict[str, Any]:
    if scale := file.value("attention.scale"):
        return {"query_pre_attn_scalar": scale**-2}
    scalar = raw["head_dim"]
    if file.value("block_count") == NUM_LAYERS_OF_27B.get(file.architecture):
        scalar = raw["hidden_size"] // raw["num_attention_heads"]
    return {"query_pre_attn_scalar": scalar}


def _rope(file: GgufFile) -> dict[str, Any]:
    """RoPE scaling as llama.cpp reads it: linear if there is a factor and no type."""
    kind = file.value("rope.scaling.type") or "linear"
    if kind not in ("none", "linear", "yarn"):
        raise _bad(f"rope.scaling.type {kind} is not supported in a GGUF file")
    factor = file.value("rope.scaling.factor") or file.value("rope.scale_linear") or 1.0
    is_scaled = kind != "none" and factor != 1
    if ROPE_FACTORS in file.tensors:
        if is_scaled:
            raise _bad(f"rope.scaling.factor {factor} is not supported beside {ROPE_FACTORS}")
        return {"rope_scaling": _factors(file)}
    if not is_scaled:
        return {}
    if kind == "linear":
        return {"rope_scaling": {"rope_type": kind, "factor": factor}}
    keys = {
        "original_max_position_embeddings": "original_context_length",
        "attention_factor": "yarn_attn_factor",
        "beta_fast": "yarn_beta_fast",
        "beta_slow": "yarn_beta_slow",
    }
    scaling = {name: file.value(f"rope.scaling.{key}") for name, key in keys.items()}
    given = {name: value for name, value in scaling.items() if value is not None}
    return {"rope_scaling": {"rope_type": kind, "factor": factor, **given}}


def _factors(file: GgufFile) -> dict[str, Any]:
    """Llama 3's RoPE scaling, expressed as longrope with the same factors at every length.

    GGUF stores only the resulting divisor of each frequency.
    """
    import numpy as np

    stored = file.tensors[ROPE_FACTORS]
    if stored.type_name != "F32":
        raise _bad(f"tensor {ROPE_FACTORS} must be of type F32")
    factors = np.memmap(
        file.path, stored.stored_dtype, "r", stored.offset, stored.stored_shape
    ).tolist()
    if not all(math.isfinite(factor) and factor > 0 for factor in factors):
        raise _bad(f"tensor {ROPE_FACTORS} must have positive numbers")
    return {
        "rope_type": "longrope",
        "short_factor": factors,
        "long_factor": factors,
        "attention_factor": 1.0,
    }


def _bad(message: str) -> ModelError:
    return ModelError("BadConfig", message)
