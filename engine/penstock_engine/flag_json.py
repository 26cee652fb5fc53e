"""Parses JSON in the values of command-line flags."""

import json
from typing import Any


def parse_json(text: str) -> Any:
    """Parses JSON. Raises ValueError, also for JSON that is nested too deeply for the parser."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
