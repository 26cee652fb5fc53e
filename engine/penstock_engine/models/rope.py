"""How positions rotate queries and keys, as config.json says it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_engine.models.fields import bad, count, number, numbers, optional_number
from penstock_engine.models.layer import KINDS, LayerConfig, LayerKind
from penstock_engine.models.registry import Family

# What a type cannot do without; longrope's lists are checked by length as well.
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
    """parameters: the keys of this rope type, as config.json spells them.

    rotary_dim: the first numbers of each head that are rotated; the rest stay as they are.
    """

    rope_type: str
    theta: float
    rotary_dim: int
    max_position_embeddings: int
    parameters: Mapping[str, Any]

    @property
    def max_model_len(self) -> int:
        """Positions the model was made for.

        Dynamic scaling re-rotates past keys as a sequence outgrows max_position_embeddings, which
        a KV cache cannot follow: up to there it is the default rotation, and there it ends.
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
    """`rope_parameters`, or the older `rope_scaling`: of all layers, or by their kind.

    The older spelling of a rotation of its own for sliding layers is rope_local_base_freq.
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
    """Where kinds of layers rotate differently, the config counts the stretching in already."""
    first, *others = ropes.values()
    if any(other != first for other in others):
        return first.max_position_embeddings
    return first.max_model_len


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value or {}, dict):
        raise bad("rope_parameters must be a JSON object, or one for each kind of layer")
    return value or {}


def _parse(
    raw: Mapping[str, Any], parameters: Mapping[str, Any], head_dim: int, *, is_partial: bool
) -> RopeConfig:
    """parameters: of one kind of layer. is_partial: a part of each head may rotate."""
    rope_type = parameters.get("rope_type", parameters.get("type", "default"))
    if "long_factor" in parameters:  # older Phi-3 configs call it "su" or "yarn"
        rope_type = "longrope"
    if not isinstance(rope_type, str) or rope_type not in NEEDED:
        raise bad(f"rope type {rope_type!r} is not supported; supported: {', '.join(NEEDED)}")
    for key in NEEDED[rope_type]:
        number(parameters, key)
    for key in OPTIONAL:
        optional_number(parameters, key)
    max_position_embeddings = count(raw, "max_position_embeddings")
    original = count(parameters, "original_max_position_embeddings", max_position_embeddings)
    original = count(raw, "original_max_position_embeddings", original)
    rotary_dim = _rotary_dim({**raw, **parameters}, head_dim, is_partial)
    completed = {**parameters, "original_max_position_embeddings": original}
    if rope_type == "longrope":
        numbers(parameters, "short_factor", rotary_dim // 2)
        numbers(parameters, "long_factor", rotary_dim // 2)
        completed["factor"] = number(parameters, "factor", max_position_embeddings / original)
    return RopeConfig(
        rope_type=rope_type,
        theta=number({**raw, **parameters}, "rope_theta", 10000.0),
        rotary_dim=rotary_dim,
        max_position_embeddings=max_position_embeddings,
        parameters=completed,
    )


def _rotary_dim(raw: Mapping[str, Any], head_dim: int, is_partial: bool) -> int:
    factor = number(raw, "partial_rotary_factor", 1.0)
    if factor > 1 or (factor != 1 and not is_partial):
        raise bad(f"partial_rotary_factor {factor} is not supported for this architecture, only 1")
    rotary_dim = int(head_dim * factor)
    if rotary_dim % 2 or not rotary_dim:
        raise bad("head_dim must be even for rotary positions, and so must the part that rotates")
    return rotary_dim
