"""Reads a JSON object from a file of a model's folder."""

from pathlib import Path
from typing import Any

from penstock_engine.files.json_parse import parse_json


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a file, which may begin with a byte-order mark. Raises ValueError, OSError."""
    try:
        content = parse_json(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be read as JSON") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} must be a JSON object")
    return content
