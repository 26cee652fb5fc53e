"""Parses the rotary position embedding (RoPE) parameters of config.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock_engine.models.attention import KINDS, LayerKind
from penstock_engine.models.fields import (
    config_error,
    read_count,
    read_number,
    read_numbers,
    read_optional_number,
)
from penstock_engine.models.layer import LayerConfig
from penstock_engine.models.registry import Family

# Required parameters by rope type; the lists of longrope are checked separately, with their length.
NEEDED: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "longrope": (),
}
# Parameters of every rope type. Advice to add rope_scaling to a config leaves them in rope_parameters.
UNSCALED = ("rope_theta", "partial_rotary_factor")
OPTIONAL = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """RoPE parameters of a layer.

    rotary_dim: number of the first dimensions of each head that are rotated. parameters: those of
    this rope type, with the keys of config.json.
    """

    rope_type: str
    theta: float
    rotary_dim: int
    max_position_embeddings: int
    parameters: Mapping[str, Any]

    @property
    def max_model_len(self) -> int:
        """Number of positions that the model supports.

        Dynamic scaling rotates earlier keys again when a sequence outgrows max_position_embeddings,
        which is impossible with a KV cache. So it ends there, and is the default rotation before.
        """
        match self.rope_type:
            case "yarn":
                original = int(self.parameters["original_max_position_embeddings"])
                stretched = int(original * self.parameters["factor"])
                return max(self.max_position_embeddings, stretched)
            case "linear":
                return int(self.max_position_embeddings * self.parameters["factor"])
            case _:
                return self.max_position_embeddings


def parse_ropes(
    raw: Mapping[str, Any], family: Family, layers: Sequence[LayerConfig]
) -> tuple[RopeConfig, ...]:
    """Parse the RoPE parameters of each layer.

    They are in `rope_parameters`, or in older configs in `rope_scaling`, either for all layers or by
    kind. As in transformers, rope_scaling counts if a config has both. In older configs,
    rope_local_base_freq is the rope_theta of sliding-window layers.

    raw: config.json with the family's defaults. Raises ModelError.
    """
    given = [_object(raw, key) for key in ("rope_parameters", "rope_scaling")]
    is_by_kind = any(map(_is_by_kind, given)) or "rope_local_base_freq" in raw
    is_partial = "partial_rotary_factor" in family.defaults

    def rope(kind: LayerKind, head_dim: int) -> RopeConfig:
        if not is_by_kind:
            return _parse(raw, _joined(*given), head_dim, is_partial=is_partial)
        own = _joined(*(_of_kind(parameters, kind) for parameters in given))
        if kind == "sliding_attention" and "rope_local_base_freq" in raw:
            own = {"rope_theta": raw["rope_local_base_freq"], **own}
        return _parse(raw, own, head_dim, is_partial=is_partial)

    keys = [(layer.kind, layer.attention.rotary_head_dim) for layer in layers]
    ropes = {key: rope(*key) for key in sorted(set(keys))}
    return tuple(ropes[key] for key in keys)


def max_model_len(ropes: Sequence[RopeConfig]) -> int:
    """Number of positions that the model supports. ropes: of its layers.

    If layers are scaled differently, max_position_embeddings already includes scaling.
    """
    first = ropes[0]
    if any(replace(rope, rotary_dim=first.rotary_dim) != first for rope in ropes):
        return first.max_position_embeddings
    return first.max_model_len


def _object(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key) or {}
    if not isinstance(value, dict):
        raise config_error(f"{key} must be a JSON object, or one for each kind of layer")
    return value


def _is_by_kind(parameters: Mapping[str, Any]) -> bool:
    return any(kind in parameters for kind in KINDS)


def _of_kind(parameters: Mapping[str, Any], kind: LayerKind) -> Mapping[str, Any]:
    """The part for one kind of layer. What is given for all layers applies to full attention only."""
    if _is_by_kind(parameters):
        return _object(parameters, kind)
    return parameters if kind == "full_attention" else {}


def _joined(parameters: Mapping[str, Any], scaling: Mapping[str, Any]) -> Mapping[str, Any]:
    """rope_scaling in place of rope_parameters, of which it keeps what does not depend on scaling."""
    if not scaling:
        return parameters
    return {**{key: parameters[key] for key in UNSCALED if key in parameters}, **scaling}


def _parse(
    raw: Mapping[str, Any], parameters: Mapping[str, Any], head_dim: int, *, is_partial: bool
) -> RopeConfig:
    """Parse the parameters of a layer. is_partial: whether rotary_dim may be below head_dim."""
    rope_type = _rope_type(parameters)
    for key in NEEDED[rope_type]:
        read_number(parameters, key)
    for key in OPTIONAL:
        read_optional_number(parameters, key)
    max_position_embeddings = read_count(raw, "max_position_embeddings")
    original = read_count(parameters, "original_max_position_embeddings", max_position_embeddings)
    original = read_count(raw, "original_max_position_embeddings", original)
    rotary_dim = _rotary_dim({**raw, **parameters}, head_dim, is_partial)
    completed = {**parameters, "original_max_position_embeddings": original}
    if rope_type == "longrope":
        read_numbers(parameters, "short_factor", rotary_dim // 2)
        read_numbers(parameters, "long_factor", rotary_dim // 2)
        completed["factor"] = read_number(parameters, "factor", max_position_embeddings / original)
    return RopeConfig(
        rope_type=rope_type,
        theta=read_number({**raw, **parameters}, "rope_theta", 10000.0),
        rotary_dim=rotary_dim,
        max_position_embeddings=max_position_embeddings,
        parameters=completed,
    )


def _rope_type(parameters: Mapping[str, Any]) -> str:
    if "long_factor" in parameters:  # older Phi-3 configs call it "su" or "yarn"
        return "longrope"
    rope_type = parameters.get("rope_type", parameters.get("type"))
    if rope_type is None and "factor" in parameters:
        raise config_error("rope_scaling has a factor, but no rope_type: set it, such as to linear")
    if rope_type is None:
        return "default"
    if not isinstance(rope_type, str) or rope_type not in NEEDED:
        raise config_error(
            f"rope type {rope_type!r} is not supported; supported: {', '.join(NEEDED)}"
        )
    return rope_type


def _rotary_dim(raw: Mapping[str, Any], head_dim: int, is_partial: bool) -> int:
    factor = read_number(raw, "partial_rotary_factor", 1.0)
    if factor > 1 or (factor != 1 and not is_partial):
        raise config_error(
            f"partial_rotary_factor {factor} is not supported for this architecture, only 1"
        )
    rotary_dim = int(head_dim * factor)
    if rotary_dim % 2 or not rotary_dim:
        raise config_error(
            "head_dim must be even for rotary positions, and so must the part that rotates"
        )
    return rotary_dim
