"""config.json and generation_config.json as one checked record. Imports no torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_engine.core.errors import ModelError
from penstock_engine.models.registry import ARCHITECTURES

ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """parameters: the keys of this rope type, as config.json spells them."""

    rope_type: str
    theta: float
    max_position_embeddings: int
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    architecture: str
    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    attention_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tie_word_embeddings: bool
    rope: RopeConfig
    max_model_len: int
    eos_token_ids: frozenset[int]

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Keys and values of one position in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype_bytes

    @classmethod
    def load(cls, model_dir: Path) -> "ModelConfig":
        """Raises ModelError (ModelNotFound, NotAModel, UnsupportedArchitecture, BadConfig)."""
        if not model_dir.is_dir():
            raise ModelError("ModelNotFound", "there is no model directory at this place")
        if not (model_dir / "config.json").is_file():
            raise ModelError("NotAModel", "the directory has no config.json")
        raw = _read_json(model_dir / "config.json")
        generation_path = model_dir / "generation_config.json"
        generation = _read_json(generation_path) if generation_path.is_file() else {}
        return cls.parse(raw, generation)

    @classmethod
    def parse(cls, raw: Mapping[str, Any], generation: Mapping[str, Any]) -> "ModelConfig":
        name = _architecture(raw)
        _refuse_unsupported(raw)
        num_heads = _count(raw, "num_attention_heads")
        num_kv_heads = _count(raw, "num_key_value_heads", num_heads)
        if num_heads % num_kv_heads:
            raise _bad("num_attention_heads is not a multiple of num_key_value_heads")
        hidden_size = _count(raw, "hidden_size")
        head_dim = _count(raw, "head_dim", hidden_size // num_heads)
        if head_dim % 2:
            raise _bad("head_dim must be even for rotary positions")
        rope = _rope(raw)
        return cls(
            architecture=name,
            model_type=str(raw.get("model_type", "")),
            vocab_size=_count(raw, "vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=_count(raw, "intermediate_size"),
            num_layers=_count(raw, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            rms_norm_eps=_number(raw, "rms_norm_eps", 1e-6),
            attention_bias=bool(raw.get("attention_bias", False)),
            mlp_bias=bool(raw.get("mlp_bias", False)),
            qk_norm=ARCHITECTURES[name].qk_norm,
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            rope=rope,
            max_model_len=_max_model_len(rope),
            eos_token_ids=_token_ids(raw) | _token_ids(generation),
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _bad(f"{path.name} cannot be read as JSON") from error
    if not isinstance(content, dict):
        raise _bad(f"{path.name} must be a JSON object")
    return content


def _architecture(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures")
    names = names if isinstance(names, list) else []
    for name in names:
        if name in ARCHITECTURES:
            return str(name)
    raise ModelError(
        "UnsupportedArchitecture",
        f"architecture {', '.join(map(str, names)) or 'unknown'} is not supported; "
        f"supported are {', '.join(sorted(ARCHITECTURES))}",
    )


def _refuse_unsupported(raw: Mapping[str, Any]) -> None:
    """What would change the mathematics, and therefore must not be passed over in silence."""
    if raw.get("hidden_act", "silu") != "silu":
        raise _bad(f"hidden_act {raw['hidden_act']!r} is not supported, only 'silu'")
    if raw.get("quantization_config"):
        raise _bad("quantized weights (quantization_config) are not supported")
    kinds = set(raw.get("layer_types") or ()) - {"full_attention"}
    if kinds or raw.get("use_sliding_window"):
        raise _bad(f"attention other than full is not supported: {', '.join(sorted(kinds))}")


def _rope(raw: Mapping[str, Any]) -> RopeConfig:
    """`rope_parameters`, or the older pair `rope_theta` and `rope_scaling`."""
    parameters = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(parameters, dict):
        raise _bad("rope_parameters must be a JSON object")
    rope_type = parameters.get("rope_type", parameters.get("type", "default"))
    if rope_type not in ROPE_TYPES:
        raise _bad(f"rope type {rope_type!r} is not supported; supported: {', '.join(ROPE_TYPES)}")
    if parameters.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
        raise _bad("partial_rotary_factor other than 1 is not supported")
    needed = {
        "linear": ("factor",),
        "dynamic": ("factor",),
        "yarn": ("factor",),
        "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    }
    for key in needed.get(rope_type, ()):
        _number(parameters, key)
    max_position_embeddings = _count(raw, "max_position_embeddings")
    original = parameters.get(
        "original_max_position_embeddings",
        raw.get("original_max_position_embeddings", max_position_embeddings),
    )
    if "rope_theta" in parameters:
        theta = _number(parameters, "rope_theta")
    else:
        theta = _number(raw, "rope_theta", 10000.0)
    return RopeConfig(
        rope_type=rope_type,
        theta=theta,
        max_position_embeddings=max_position_embeddings,
        parameters={**parameters, "original_max_position_embeddings": original},
    )


def _max_model_len(rope: RopeConfig) -> int:
    """Positions the model was made for.

    Dynamic scaling re-rotates past keys as a sequence outgrows max_position_embeddings, which a
    KV cache cannot follow: up to there it is the default rotation, and there it ends.
    """
    match rope.rope_type:
        case "yarn":
            original = int(rope.parameters["original_max_position_embeddings"])
            return max(rope.max_position_embeddings, int(original * rope.parameters["factor"]))
        case "linear":
            return int(rope.max_position_embeddings * rope.parameters["factor"])
        case _:
            return rope.max_position_embeddings


def _token_ids(raw: Mapping[str, Any]) -> frozenset[int]:
    ids = raw.get("eos_token_id")
    ids = ids if isinstance(ids, list) else [] if ids is None else [ids]
    if not all(isinstance(i, int) for i in ids):
        raise _bad("eos_token_id must be a number or a list of numbers")
    return frozenset(ids)


def _count(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _bad(f"{key} must be a positive whole number")
    return value


def _number(raw: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise _bad(f"{key} must be a positive number")
    return float(value)


def _bad(message: str) -> ModelError:
    return ModelError("BadConfig", message)
