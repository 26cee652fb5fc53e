"""Parses the values of command-line flags."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from typer import BadParameter

from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.files.json_reader import parse_json
from penstock_engine.kv_events.config import KVEventsConfig

# Value for the longest context length for which the KV cache has room.
FIT = -1

LOOKUP_BOUNDS = ("prompt_lookup_min", "prompt_lookup_max")

SIZES = {"k": 1000, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}


def context_length(text: str) -> int:
    """Parses auto, -1, 4096, 4k (4000) or 4K (4096). Raises BadParameter."""
    if text in ("auto", "-1"):
        return FIT
    try:
        length = _scaled(text)
    except (ValueError, OverflowError):
        length = 0
    if length < 2:
        raise BadParameter(f"{text!r} is neither auto nor a number of tokens from 2")
    return length


def count(given: str | int) -> int:
    """Parses 4096, 4k (4000) or 4K (4096); passes numbers through. Raises BadParameter."""
    try:
        number = _scaled(given) if isinstance(given, str) else given
    except (ValueError, OverflowError):
        number = 0
    if number < 1:
        raise BadParameter(f"{given!r} is not a whole number of at least 1")
    return number


def _scaled(text: str) -> int:
    number, scale = (text[:-1], SIZES[text[-1]]) if text[-1:] in SIZES else (text, 1)
    return int(number) if scale == 1 else int(float(number) * scale)


def json_object(given: str | dict[str, Any]) -> dict[str, Any]:
    """Parses a JSON object; passes an object through. Raises BadParameter."""
    value = _json(given) if isinstance(given, str) else given
    if not isinstance(value, dict):
        raise BadParameter(f"{given!r} is not a JSON object")
    return value


def speculation(text: str) -> SpeculationConfig:
    """Parses vLLM's JSON of --speculative-config. Raises BadParameter.

    One of the bounds of n-grams without the other is both of them, as in vLLM.
    """
    values = json_object(text)
    given = [values[name] for name in LOOKUP_BOUNDS if values.get(name) is not None]
    if len(given) == 1:
        values = values | dict.fromkeys(LOOKUP_BOUNDS, given[0])
    try:
        return SpeculationConfig(**values)
    except (ValueError, TypeError) as error:
        raise BadParameter(str(error)) from error


def kv_events(text: str) -> KVEventsConfig:
    """Parses vLLM's JSON of --kv-events-config. Raises BadParameter."""
    values = json_object(text)
    if unknown := values.keys() - {field.name for field in fields(KVEventsConfig)}:
        raise BadParameter(f"{', '.join(sorted(unknown))}: there is no such setting")
    try:
        return KVEventsConfig(**values)
    except ValueError as error:
        raise BadParameter(str(error)) from error


def json_texts(given: str | Sequence[str]) -> list[str]:
    """Parses a JSON list of strings; passes a sequence through. Raises BadParameter."""
    value = _json(given) if isinstance(given, str) else list(given)
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise BadParameter(f"{given!r} is not a JSON list of texts")
    return value


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise BadParameter(f"{text!r} is not JSON") from error
