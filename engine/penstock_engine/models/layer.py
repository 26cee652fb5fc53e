"""Per-layer configuration: attention, its window, and whether the MLP is a mixture of experts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_engine.models.attention import AttentionConfig, LayerKind, parse_attention
from penstock_engine.models.fields import config_error, read_count
from penstock_engine.models.registry import WINDOW_KEYS, Family

# Bound on the memory that a malicious config can take. The deepest published models have about 130.
MAX_LAYERS = 1000


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """Configuration of one layer.

    kind: as in layer_types of config.json; rotary embedding may differ by kind. window_tokens: a token
    attends to itself and the window_tokens - 1 before it; None: full attention.
    """

    attention: AttentionConfig
    kind: LayerKind
    window_tokens: int | None
    has_experts: bool


def parse_layers(raw: Mapping[str, Any], family: Family) -> tuple[LayerConfig, ...]:
    """Parse the configuration of all layers.

    raw: config.json with the family's defaults. Raises ModelError.
    """
    attention = parse_attention(raw, family)
    num_layers = read_count(raw, "num_hidden_layers")
    if num_layers > MAX_LAYERS:
        raise config_error(f"num_hidden_layers must be at most {MAX_LAYERS}")
    kinds = _given_kinds(raw, num_layers, attention) or _kinds(raw, family, num_layers)
    plain = raw.get("mlp_only_layers") or []
    if not isinstance(plain, list):
        raise config_error("mlp_only_layers must be a list of layer numbers")
    step = read_count(raw, "decoder_sparse_step", 1)
    return tuple(
        LayerConfig(
            attention=attention[kind],
            kind=kind,
            window_tokens=read_count(raw, "sliding_window")
            if kind == "sliding_attention"
            else None,
            has_experts=family.mlp == "experts" and index not in plain and (index + 1) % step == 0,
        )
        for index, kind in enumerate(kinds)
    )


def _given_kinds(
    raw: Mapping[str, Any], num_layers: int, supported: Collection[LayerKind]
) -> Sequence[LayerKind] | None:
    given = raw.get("layer_types")
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != num_layers:
        raise config_error(f"layer_types must name the kind of each of the {num_layers} layers")
    for kind in given:
        # A tuple: an entry of the file may be a list, which no dictionary can be asked for.
        if kind not in tuple(supported):
            raise config_error(
                f"layer type {kind!r} is not supported; supported: {', '.join(supported)}"
            )
    if "sliding_attention" in given and raw.get("sliding_window") is None:
        raise config_error("layer_types asks for sliding_attention, but sliding_window is not set")
    return given


def _kinds(raw: Mapping[str, Any], family: Family, num_layers: int) -> Sequence[LayerKind]:
    """Derive layer kinds from the older keys, as transformers does if layer_types is absent."""
    keys = {key: raw[key] for key in WINDOW_KEYS if key in family.defaults}
    if keys.get("sliding_window") is None or not keys.get("use_sliding_window", True):
        return ["full_attention"] * num_layers
    first = read_count(keys, "max_window_layers", 0, least=0)
    period = read_count(keys, "sliding_window_pattern", num_layers + 1)
    return [
        "sliding_attention" if index >= first and (index + 1) % period else "full_attention"
        for index in range(num_layers)
    ]
