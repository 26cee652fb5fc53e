"""Parses JSON that users, engines and other programs write."""

import json
from collections.abc import Callable
from typing import Any

# Called with the fields of each object; returns what to take for it.
MakeObject = Callable[[list[tuple[str, Any]]], Any]


def parse_json(text: str | bytes, make_object: MakeObject | None = None) -> Any:
    """Parse JSON. Raises ValueError, also for JSON that is nested too deeply for the parser."""
    try:
        return json.loads(text, object_pairs_hook=make_object)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
