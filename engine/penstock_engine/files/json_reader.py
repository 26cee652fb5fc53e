"""Reads JSON that others have written: a text, or an object in a file of a model's folder."""

import json
from pathlib import Path
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parses JSON. Raises ValueError, also for JSON that is nested too deeply for the parser."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a file, which may begin with a byte-order mark. Raises ValueError, OSError."""
    try:
        content = parse_json(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be read as JSON") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} must be a JSON object")
    return content
