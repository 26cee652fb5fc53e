"""Strict JSON, and a scanner that finds the end of a JSON value in text that arrives in chunks."""

import json
import re
from collections.abc import Iterator
from typing import Any

_DELIMITERS = re.compile(r'["\\{}\[\]]')


class JsonScanner:
    """Finds the brackets of JSON in text that arrives in chunks, in linear time.

    It does not validate the JSON. depth: number of brackets that are open.
    """

    def __init__(self) -> None:
        self.depth = 0
        self._in_string = False
        self._is_escaped = False

    def brackets(self, chunk: str) -> Iterator[tuple[int, int]]:
        """Yields the index after each bracket outside of strings, and how deep the text is nested there.

        A caller that stops at a bracket goes on with the chunk after it.
        """
        start = 1 if self._is_escaped and chunk else 0
        self._is_escaped &= not chunk
        for match in _DELIMITERS.finditer(chunk):
            delimiter, at = match[0], match.start()
            if at < start:  # escaped by a backslash
                continue
            if self._in_string:
                if delimiter == "\\":
                    start = at + 2
                    self._is_escaped = start > len(chunk)
                elif delimiter == '"':
                    self._in_string = False
            elif delimiter == '"':
                self._in_string = True
            elif delimiter != "\\":
                self.depth += 1 if delimiter in "{[" else -1
                yield at + 1, self.depth

    def find_end(self, chunk: str) -> int | None:
        """Returns the index just after the bracket that closes the first one; None if it has not come."""
        return next((end for end, depth in self.brackets(chunk) if depth <= 0), None)


def read_json(text: str) -> Any:
    """Parses strict JSON, without NaN and Infinity.

    Raises ValueError if the text is not strict JSON, RecursionError if it is nested too deeply.
    """
    return json.loads(text, parse_constant=_reject_constant)


def parse_object(text: str) -> dict[str, Any] | None:
    """Parses the text of a JSON object that can be written again; None if the text is anything else."""
    try:
        value = read_json(text)
        write_json(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def write_json(value: Any) -> str:
    """Serializes a value as strict JSON.

    Raises ValueError for NaN, infinities and lone surrogates, RecursionError for deep nesting.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
