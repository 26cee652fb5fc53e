"""Measures the text of a prompt, in a request body that is parsed already."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

# The usual length of a token in English text. Token ids count as so many bytes each.
BYTES_PER_TOKEN = 4
# Of one set of tools; 128 tools of 20 parameters have about 10,000. Each takes 0.3 us of the event loop.
MAX_VALUES = 20_000


def prompt_text_bytes(fields: Mapping[str, Any]) -> int:
    """UTF-8 bytes of the text that the engine makes tokens of: `prompt`, messages and tools. Blanks
    between JSON values, parameters and images are none of it."""
    if fields.get("messages") is not None:
        return _messages_bytes(fields["messages"]) + _json_bytes(fields.get("tools"))
    return _prompt_bytes(fields.get("prompt"))


def _messages_bytes(messages: Any) -> int:
    if not isinstance(messages, list):
        return 0
    return sum(
        _content_bytes(message.get("content")) + _json_bytes(message.get("tool_calls"))
        for message in messages
        if isinstance(message, dict)
    )


def _content_bytes(content: Any) -> int:
    if isinstance(content, list):
        return sum(_text_bytes(part.get("text")) for part in content if isinstance(part, dict))
    return _text_bytes(content)


def _prompt_bytes(prompt: Any) -> int:
    """Bytes of a prompt: one text, texts, token ids, or lists of token ids."""
    if not isinstance(prompt, list):
        return _text_bytes(prompt)
    # By the first item: a loop over a million token ids would stop the event loop for 0.2 s.
    match prompt[:1]:
        case [int()]:
            return BYTES_PER_TOKEN * len(prompt)
        case [str()]:
            return _joined_bytes(prompt)
        case [list()]:
            return BYTES_PER_TOKEN * sum(len(ids) for ids in prompt if isinstance(ids, list))
        case _:
            return 0


def _joined_bytes(texts: list[Any]) -> int:
    try:
        return _text_bytes("".join(texts))
    except TypeError:  # not all of them are texts: the engine will refuse them
        return 0


def _json_bytes(value: Any) -> int:
    """Names and texts of a JSON value at any depth, of the first so many values."""
    total, left = 0, [value]
    for _ in range(MAX_VALUES):
        if not left:
            break
        one = left.pop()
        if isinstance(one, dict):
            total += sum(map(_text_bytes, islice(one, MAX_VALUES)))
            left.extend(islice(one.values(), MAX_VALUES))
        elif isinstance(one, list):
            left.extend(one[:MAX_VALUES])
        else:
            total += _text_bytes(one)
    return total


def _text_bytes(text: Any) -> int:
    return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0
