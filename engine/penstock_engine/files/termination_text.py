"""Writes the report of a command as JSON that fits into the termination message of a container."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

MAX_BYTES = 4096  # Kubernetes truncates longer messages, which are then no valid JSON
SENTENCES = ("message", "problem")  # keys of texts that are cut before names and URIs
MIN_SENTENCE = 200  # characters that a sentence keeps while something else can be cut


def termination_text(report: Mapping[str, Any]) -> str:
    """The JSON of a report, whose longest texts are cut until it has at most MAX_BYTES."""
    text = json.dumps(report)
    while len(text) > MAX_BYTES:
        content = json.loads(text)
        parent, key = max(_texts(content), key=lambda place: _rank(*place))
        value = parent[key]
        parent[key] = f"{value.rstrip('…')[: len(value) // 2]}…"
        text = json.dumps(content)
    return text


def _rank(parent: Any, key: Any) -> tuple[bool, int]:
    value = parent[key]
    return key in SENTENCES and len(value) > MIN_SENTENCE, len(value)


def _texts(content: Any) -> Iterator[tuple[Any, Any]]:
    """All texts in JSON, each as the object or list that has it, and its key or index there."""
    entries = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in entries:
        if isinstance(value, str):
            yield content, key
        elif isinstance(value, dict | list):
            yield from _texts(value)
