"""Reads JSON that others have written: a text, or an object in a file of a model's folder.

The text may be hostile: each byte of `[[[[…` needs 50 bytes of memory. A container that exceeds its limit is
killed without an error message, so such a text is refused before it is parsed.
"""

import json
from pathlib import Path
from typing import Any

# Upper bound of the memory that the parser needs for one text, in bytes. The smallest container that reads
# weights has 512 MiB, of which the program has 100. The header of 100,000 tensors in one file counts 276
# MiB, and needs 100; an index of 200,000 tensors counts 114.
MAX_PARSED_BYTES = 320 << 20
# Upper bounds of what CPython's json needs, in bytes: for each byte of the text, which is there as bytes and
# as a str, and for these characters, which begin or divide values. Those within strings count too.
TEXT_COST = 3
COSTS = {"[": 112, "{": 200, '"': 32, ",": 48, ":": 100}
WIDEST_CHARACTER = 4  # bytes of each character in memory, if one of the text's needs more than one


class JsonTooLargeError(ValueError):
    """A text needs too much memory to be parsed. The message goes on after the name of the file."""


def parse_json(text: str | bytes) -> Any:
    """Parses JSON.

    Raises ValueError, also for JSON that is nested too deeply for the parser, and JsonTooLargeError.
    """
    check_parsed_size(text)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def check_parsed_size(text: str | bytes) -> None:
    """Raise JsonTooLargeError for a text that may need more than MAX_PARSED_BYTES to be parsed."""
    num_bytes = parsed_bytes(text)
    if num_bytes > MAX_PARSED_BYTES:
        raise JsonTooLargeError(
            f"needs up to {num_bytes >> 20} MiB of memory to be read, more than the limit of "
            f"{MAX_PARSED_BYTES >> 20}"
        )


def parsed_bytes(text: str | bytes) -> int:
    """Upper bound of the memory in bytes that the parser needs for a text, valid or not."""
    if isinstance(text, str):
        is_narrow = text.isascii() and "\\u" not in text
        values = sum(cost * text.count(character) for character, cost in COSTS.items())
    else:
        is_narrow = text.isascii() and b"\\u" not in text
        values = sum(cost * text.count(character.encode()) for character, cost in COSTS.items())
    return values + TEXT_COST * len(text) * (1 if is_narrow else WIDEST_CHARACTER)


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a file, which may begin with a byte-order mark. Raises ValueError, OSError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PARSED_BYTES // TEXT_COST + 1)  # so much is refused
        check_parsed_size(data)
        content = parse_json(data.decode("utf-8-sig"))
    except JsonTooLargeError as error:
        raise JsonTooLargeError(f"{path.name} {error}") from error
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be read as JSON") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} must be a JSON object")
    return content
