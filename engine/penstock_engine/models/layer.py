"""What distinguishes the layers of one model: how far each sees, and which have experts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock_engine.models.fields import bad, count
from penstock_engine.models.registry import WINDOW_KEYS, Family

LayerKind = Literal["full_attention", "sliding_attention"]
KINDS: tuple[LayerKind, ...] = ("full_attention", "sliding_attention")

# The deepest published models have about 130; a list of them should never be a danger.
MAX_LAYERS = 1000


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """kind: as layer_types in config.json spells it; a model may rotate each kind differently.

    window_tokens: a token sees itself and the window_tokens - 1 before it; None: all before it.
    """

    kind: LayerKind
    window_tokens: int | None
    has_experts: bool


def parse_layers(raw: Mapping[str, Any], family: Family) -> tuple[LayerConfig, ...]:
    """raw: config.json with the family's defaults. Raises ModelError."""
    num_layers = count(raw, "num_hidden_layers")
    if num_layers > MAX_LAYERS:
        raise bad(f"num_hidden_layers must be at most {MAX_LAYERS}")
    kinds = _given_kinds(raw, num_layers) or _kinds(raw, family, num_layers)
    plain = raw.get("mlp_only_layers") or []
    if not isinstance(plain, list):
        raise bad("mlp_only_layers must be a list of layer numbers")
    step = count(raw, "decoder_sparse_step", 1)
    return tuple(
        LayerConfig(
            kind=kind,
            window_tokens=count(raw, "sliding_window") if kind == "sliding_attention" else None,
            has_experts=family.mlp == "experts" and index not in plain and (index + 1) % step == 0,
        )
        for index, kind in enumerate(kinds)
    )


def _given_kinds(raw: Mapping[str, Any], num_layers: int) -> Sequence[LayerKind] | None:
    given = raw.get("layer_types")
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != num_layers:
        raise bad(f"layer_types must name the kind of each of the {num_layers} layers")
    for kind in given:
        if kind not in KINDS:
            raise bad(f"layer type {kind!r} is not supported; supported: {', '.join(KINDS)}")
    if "sliding_attention" in given and raw.get("sliding_window") is None:
        raise bad("layer_types asks for sliding_attention, but sliding_window is not set")
    return given


def _kinds(raw: Mapping[str, Any], family: Family, num_layers: int) -> Sequence[LayerKind]:
    """What transformers makes of the older keys, where layer_types is not spelled out."""
    keys = {key: raw[key] for key in WINDOW_KEYS if key in family.defaults}
    if keys.get("sliding_window") is None or not keys.get("use_sliding_window", True):
        return ["full_attention"] * num_layers
    first = count(keys, "max_window_layers", 0, least=0)
    period = count(keys, "sliding_window_pattern", num_layers + 1)
    return [
        "sliding_attention" if index >= first and (index + 1) % period else "full_attention"
        for index in range(num_layers)
    ]
