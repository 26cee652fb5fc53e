"""Translates calls of functions that stand for custom tools back to calls of the custom tools."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from penstock_engine.server.answers.deltas import Delta
from penstock_engine.server.routes.responses.tools import INPUT

# Bounds the white space in the opening, because it is searched anew at each chunk.
MAX_OPENING_CHARS = 1024

_OPENING = f'{{"{INPUT}":"'  # without white space
_OPENING_PATTERN = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
# Whole characters of a JSON string. A surrogate is whole together with the escape after it.
_CHARACTERS = re.compile(
    r'(?:[^"\\]+|\\[^u]|\\u(?:[dD][89abAB][0-9a-fA-F]{2}\\u|(?![dD][89abAB]))[0-9a-fA-F]{4})*'
)


class CustomCalls:
    """Replaces the arguments of calls of custom tools by their text input, in deltas that arrive in order."""

    def __init__(self, names: frozenset[str]) -> None:
        """names: of the custom tools."""
        self._names = names
        self._input: InputReader | None = None  # of the open call

    def translate(self, deltas: Iterable[Delta]) -> Iterator[Delta]:
        for delta in deltas:
            if delta.kind == "call" and delta.id:
                self._input = InputReader() if delta.name in self._names else None
            if delta.kind == "call" and self._input is not None:
                yield replace(delta, is_custom=True, text=self._input.push(delta.text))
            else:
                yield delta


class InputReader:
    """Decodes the text input in the arguments of one call, as they arrive.

    Arguments that are not an object with this text are passed on unchanged.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._is_open = False  # whether the text has begun
        self._is_ended = False
        self._is_other = False  # whether the arguments have another form

    def push(self, text: str) -> str:
        """Returns the text that is certain after this chunk."""
        self._rest += text
        if self._is_other:
            return self._take(len(self._rest))
        if not self._is_open:
            opening = _OPENING_PATTERN.match(self._rest)
            if opening is None:
                is_partial = _OPENING.startswith("".join(self._rest.split()))
                self._is_other = not is_partial or len(self._rest) > MAX_OPENING_CHARS
                return self._take(len(self._rest)) if self._is_other else ""
            self._is_open = True
            self._take(opening.end())
        if self._is_ended:
            return ""
        whole = _CHARACTERS.match(self._rest)
        assert whole is not None
        decoded = _decode(self._take(whole.end()))
        self._is_ended = self._rest.startswith('"')
        return decoded

    def _take(self, num_chars: int) -> str:
        taken, self._rest = self._rest[:num_chars], self._rest[num_chars:]
        return taken


def _decode(text: str) -> str:
    """Decodes the inside of a JSON string. Returns it unchanged if it is not valid."""
    try:
        decoded: str = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return text
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
