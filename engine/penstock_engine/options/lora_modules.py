"""Reads the value of `--lora-modules`: the adapters to load at the start."""

from dataclasses import dataclass
from typing import Any

from penstock_engine.files.json_reader import parse_json

FIELDS = {"name", "path", "base_model_name"}


@dataclass(frozen=True, slots=True)
class LoraModule:
    """An adapter of `--lora-modules`.

    path: its folder. base_model_name: the parent that /v1/models shows; None: the served model.
    """

    name: str
    path: str
    base_model_name: str | None = None


def read_lora_modules(text: str) -> list[LoraModule]:
    """Parse NAME=FOLDER, a JSON object, or a JSON list of objects. Raises ValueError."""
    if text[:1] not in ("{", "["):
        name, _, path = text.partition("=")
        return [_checked({"name": name, "path": path})]
    try:
        entries = parse_json(text)
    except ValueError as error:
        raise ValueError(f"--lora-modules: {text!r} is not JSON") from error
    return [_checked(entry) for entry in (entries if isinstance(entries, list) else [entries])]


def _checked(entry: Any) -> LoraModule:
    is_whole = (
        isinstance(entry, dict)
        and entry.keys() <= FIELDS
        and all(isinstance(value, str) and value for value in entry.values())
        and {"name", "path"} <= entry.keys()
    )
    if not is_whole:
        raise ValueError(
            '--lora-modules must be NAME=FOLDER, or {"name": …, "path": …} with or without a '
            '"base_model_name"'
        )
    return LoraModule(**entry)
