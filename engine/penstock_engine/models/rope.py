"""How positions rotate queries and keys, as config.json says it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock_engine.models.fields import bad, count, number, numbers

# What a type cannot do without; longrope's lists are checked by length as well.
NEEDED: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "longrope": (),
}


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


def parse_rope(
    raw: Mapping[str, Any], parameters: Mapping[str, Any], head_dim: int, *, is_partial: bool
) -> RopeConfig:
    """raw: config.json with the family's defaults. parameters: those of one kind of layer.

    is_partial: the family may rotate a part of each head. Raises ModelError.
    """
    rope_type = parameters.get("rope_type", parameters.get("type", "default"))
    if "long_factor" in parameters:  # older Phi-3 configs call it "su" or "yarn"
        rope_type = "longrope"
    if rope_type not in NEEDED:
        raise bad(f"rope type {rope_type!r} is not supported; supported: {', '.join(NEEDED)}")
    for key in NEEDED[rope_type]:
        number(parameters, key)
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
