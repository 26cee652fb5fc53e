"""JSON in text that arrives in pieces: where a value ends, in linear time, and what it is."""

import json
import re
from typing import Any

_MARKS = re.compile(r'["\\{}\[\]]')


class JsonScan:
    """Finds the bracket that closes the first one. What lies between is not checked."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def end(self, piece: str) -> int | None:
        """How much of the next piece belongs to the value, when it ends in this piece."""
        start = 1 if self._is_escaped and piece else 0
        self._is_escaped &= not piece
        for match in _MARKS.finditer(piece):
            mark, at = match[0], match.start()
            if at < start:  # it follows a backslash
                continue
            if self._in_string:
                if mark == "\\":
                    start = at + 2
                    self._is_escaped = start > len(piece)
                elif mark == '"':
                    self._in_string = False
            elif mark == '"':
                self._in_string = True
            elif mark != "\\":
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0:
                    return at + 1
        return None


def read_json(text: str) -> Any:
    """Raises ValueError for what is not strict JSON, RecursionError when it is nested too deeply."""
    return json.loads(text, parse_constant=_refuse)


def write_json(value: Any) -> str:
    """Raises as read_json does: for infinities, half surrogate pairs, deep nesting."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
