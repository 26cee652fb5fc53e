"""Parses the rotary position embedding (RoPE) parameters of config.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_engine.models.fields import (
    config_error,
    read_count,
    read_number,
    read_numbers,
    read_optional_number,
)
from penstock_engine.models.layer import KINDS, LayerConfig, LayerKind
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
OPTIONAL = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """RoPE parameters of one kind of layer.

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
    raw: Mapping[str, Any], family: Family, head_dim: int, layers: Sequence[LayerConfig]
) -> Mapping[LayerKind, RopeConfig]:
    """Parse RoPE parameters for each kind of layer.

    They are in `rope_parameters`, or in older configs in `rope_scaling`, either for all layers or by
    kind. In older configs, rope_local_base_freq is the rope_theta of sliding-window layers.

    raw: config.json with the family's defaults. Raises ModelError.
    """
    given = _object(raw.get("rope_parameters") or raw.get("rope_scaling"))
    kinds = sorted({layer.kind for layer in layers})
    is_partial = "partial_rotary_factor" in family.defaults
    is_by_kind = any(kind in given for kind in KINDS)
    if not is_by_kind and "rope_local_base_freq" not in raw:
        return dict.fromkeys(kinds, _parse(raw, given, head_dim, is_partial=is_partial))
    by_kind = given if is_by_kind else {"full_attention": given}
    ropes: dict[LayerKind, RopeConfig] = {}
    for kind in kinds:
        own = _object(by_kind.get(kind))
        if kind == "sliding_attention" and "rope_local_base_freq" in raw:
            own = {"rope_theta": raw["rope_local_base_freq"], **own}
        ropes[kind] = _parse(raw, own, head_dim, is_partial=is_partial)
    return ropes


def max_model_len(ropes: Mapping[LayerKind, RopeConfig]) -> int:
    """Number of positions that the model supports.

    If kinds of layers have different parameters, max_position_embeddings already includes scaling.
    """
    first, *others = ropes.values()
    if any(other != first for other in others):
        return first.max_position_embeddings
    return first.max_model_len


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value or {}, dict):
        raise config_error("rope_parameters must be a JSON object, or one for each kind of layer")
    return value or {}


def _parse(
    raw: Mapping[str, Any], parameters: Mapping[str, Any], head_dim: int, *, is_partial: bool
) -> RopeConfig:
    """Parse the parameters of one kind of layer. is_partial: whether rotary_dim may be below head_dim."""
    rope_type = parameters.get("rope_type", parameters.get("type", "default"))
    if "long_factor" in parameters:  # older Phi-3 configs call it "su" or "yarn"
        rope_type = "longrope"
    if not isinstance(rope_type, str) or rope_type not in NEEDED:
        raise config_error(
            f"rope type {rope_type!r} is not supported; supported: {', '.join(NEEDED)}"
        )
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
