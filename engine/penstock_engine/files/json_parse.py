"""Parses JSON that others have written."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parses JSON. Raises ValueError, also for JSON that is nested too deeply for the parser."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
