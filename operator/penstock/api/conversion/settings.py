"""Reads the settings of engine, runtime and tracing from a spec, by path and in base units."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.api.inferenceservice.kind import InferenceServiceSpec
from penstock.core.formats.quantity import parse_duration_s, whole_quantity
from penstock.core.spec.fields import SETTINGS, check_settings

IS_ENABLED = {"Enabled": True, "Disabled": False}

# Conversions of values in the spec to base units, by path. Values of other paths need none.
CONVERTERS: dict[str, Callable[[Any], Any]] = {
    **{path: IS_ENABLED.__getitem__ for path in SETTINGS if path.endswith(".mode")},
    "engine.kvCache.memory": whole_quantity,
    "engine.kvCache.offload.cpu.memory": whole_quantity,
    "engine.scheduling.requestTimeout": parse_duration_s,
    "engine.generation.defaults.temperature": float,
    "engine.generation.defaults.topP": float,
    "engine.generation.defaults.minP": float,
    "engine.generation.defaults.repetitionPenalty": float,
    "engine.extraArgs": tuple,
    "engine.lora.sources": lambda sources: tuple(sorted(sources)),
    "runtime.custom.command": tuple,
    "runtime.custom.args": tuple,
}

check_settings(CONVERTERS)


def settings_of(spec: InferenceServiceSpec) -> dict[str, Any]:
    """The set fields of spec.engine, spec.runtime and spec.tracing."""
    written = spec.model_dump(by_alias=True, exclude_defaults=True)
    return {
        path: CONVERTERS[path](value) if path in CONVERTERS else value
        for path, value in _leaves(written)
    }


def _leaves(node: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of each setting in a nested map. above: path of the map."""
    for name, value in node.items():
        path = f"{above}.{name}" if above else name
        if path in SETTINGS:
            yield path, value
        elif isinstance(value, dict):
            yield from _leaves(value, path)
