"""Encodes answers as JSON in pieces, so that large ones do not block other threads.

json.dumps holds the GIL for a whole body: 0.7 s for 32,000 tokens with 20 log-probabilities each.
Millions of dicts also slow down each garbage collection. Therefore entries of long lists are encoded
when they are made, and bodies are assembled from pieces.
"""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

Json = dict[str, Any]

# Maximum number of scalars of a list that one call encodes, in less than a millisecond.
MAX_SCALARS = 1024

_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_utf8 = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False)


class JsonText(str):
    """A value that is JSON text already. Unlike dicts, it costs the garbage collector nothing."""

    __slots__ = ()


def to_text(value: Any) -> JsonText:
    """Encodes a small value as ASCII text. Raises ValueError for a number that is not finite."""
    return JsonText(_ascii.encode(value))


def encode(value: Any) -> bytes:
    """Encodes a body as UTF-8. Raises ValueError for a number that is not finite."""
    return "".join(_pieces(value, _utf8)).encode()


def encode_line(value: Any) -> bytes:
    """Encodes an event of a stream as ASCII, because some clients split lines at U+2028 too.

    Raises ValueError for a number that is not finite.
    """
    return "".join(_pieces(value, _ascii)).encode()


def _pieces(value: Any, encoder: json.JSONEncoder) -> Iterator[str]:
    if isinstance(value, JsonText):
        yield value
    elif isinstance(value, dict):
        separator = "{"
        for key, inner in value.items():
            yield f"{separator}{encoder.encode(str(key))}:"
            yield from _pieces(inner, encoder)
            separator = ","
        yield "}" if value else "{}"
    elif isinstance(value, (list, tuple)):
        yield from _list_pieces(value, encoder)
    else:
        yield encoder.encode(value)


def _list_pieces(values: list[Any] | tuple[Any, ...], encoder: json.JSONEncoder) -> Iterator[str]:
    separator = "["
    entries = iter(values)
    while some := list(islice(entries, MAX_SCALARS)):
        yield separator
        separator = ","
        if any(isinstance(entry, (dict, list, tuple, JsonText)) for entry in some):
            for number, entry in enumerate(some):
                if number:
                    yield ","
                yield from _pieces(entry, encoder)
        else:
            yield encoder.encode(some)[1:-1]
    yield "]" if values else "[]"
