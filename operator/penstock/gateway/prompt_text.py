"""Measures the text of a prompt, in a request body that is parsed already."""

from collections.abc import Mapping
from typing import Any

# The usual length of a token in English text. Token ids count as so many bytes each.
BYTES_PER_TOKEN = 4


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
    """Of one text, texts, token ids, or lists of token ids."""
    if not isinstance(prompt, list):
        return _text_bytes(prompt)
    total = 0
    for item in prompt:
        if isinstance(item, list):
            total += BYTES_PER_TOKEN * len(item)
        else:
            total += BYTES_PER_TOKEN if isinstance(item, int) else _text_bytes(item)
    return total


def _json_bytes(value: Any) -> int:
    """Names and texts of a JSON value at any depth."""
    total, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            total += sum(map(_text_bytes, one))
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
        else:
            total += _text_bytes(one)
    return total


def _text_bytes(text: Any) -> int:
    return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0
