"""Reads the settings of engine, runtime and tracing from a spec, by path and in base units.

The schema has them all. A path that core names but the schema lacks fails at import.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from penstock.api.inferenceservice.kind import InferenceServiceSpec
from penstock.api.schema.rules import Model
from penstock.core.formats.quantity import parse_duration_s, whole_quantity
from penstock.core.runtimes import penstock, vllm
from penstock.core.spec.fields import (
    FROZEN_DEFAULTS,
    OTHER_FIELDS,
    SETTING_SECTIONS,
    VLLM_CHOOSES,
)


def _paths(model: type[Model], above: str = "") -> Iterator[str]:
    """Yield the path of each field that is no section. above: path of the model, with a dot at its end."""
    for name, field in model.model_fields.items():
        path = f"{above}{field.alias or name}"
        section = _section(field.annotation)
        if section is None:
            yield path
        else:
            yield from _paths(section, f"{path}.")


def _section(annotation: Any) -> type[Model] | None:
    """The model in an annotation `Model` or `Model | None`; None for other annotations."""
    is_union = get_origin(annotation) in (Union, UnionType)
    for kind in get_args(annotation) if is_union else (annotation,):
        if isinstance(kind, type) and issubclass(kind, Model):
            return kind
    return None


# Paths of the settings, in the order of the schema.
SETTINGS = tuple(
    path
    for path in _paths(InferenceServiceSpec)
    if path.partition(".")[0] in SETTING_SECTIONS and path not in OTHER_FIELDS
)

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


def check_settings(paths: Iterable[str]) -> None:
    """Raise ValueError for paths that are not settings."""
    if unknown := set(paths) - set(SETTINGS):
        raise ValueError(f"{', '.join(sorted(unknown))}: the schema has no such setting")


check_settings([*CONVERTERS, *FROZEN_DEFAULTS, *VLLM_CHOOSES])
for runtime in (penstock.RUNTIME, vllm.RUNTIME):
    check_settings(path for each in runtime.arguments for path in each.paths)


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
