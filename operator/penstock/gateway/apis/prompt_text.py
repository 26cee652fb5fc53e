"""Measures the text of the prompt in a parsed request body."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from penstock.core.routing.apis import Api

# Usual length of a token in English text. Each token id of a prompt counts as this many bytes.
BYTES_PER_TOKEN = 4
# Types of content parts that are text; without a type, a part with `text` is text as well.
TEXT_PARTS = frozenset({None, "text", "input_text", "output_text"})
# Bound on the JSON values and keys of tools and their calls that are measured in one request. 128 tools of 20
# parameters have about 20,000; each takes 0.3 us of the event loop.
MAX_VALUES = 30_000


def prompt_text_bytes(fields: Mapping[str, Any], api: Api) -> int:
    """Length in UTF-8 bytes of the text that the engine tokenizes: a text, or messages and tools.

    Blanks between JSON values, sampling parameters and images do not count.
    """
    kind, prompt = api.prompt_of(fields)
    match kind:
        case "Messages":
            tools = JsonTextMeter(MAX_VALUES)
            return _messages_bytes(prompt, tools) + tools.measure(fields.get("tools"))
        case "Text":
            return _prompt_bytes(prompt)


def is_text_only(fields: Mapping[str, Any], api: Api) -> bool:
    """Whether the prompt is text alone: no message has an image or other media."""
    kind, messages = api.prompt_of(fields)
    return (
        kind == "Text"
        or not isinstance(messages, list)
        or not any(
            _has_media(message.get("content")) for message in messages if isinstance(message, dict)
        )
    )


def _has_media(content: Any) -> bool:
    return isinstance(content, list) and not all(
        isinstance(part, dict)
        and isinstance(part.get("text"), str)
        and part.get("type") in TEXT_PARTS
        for part in content
    )


class JsonTextMeter:
    """Measures the keys and strings of JSON values at any depth, up to a number of values and keys.

    num_left: how many more are measured; further ones count as no text.
    """

    def __init__(self, num_left: int) -> None:
        self.num_left = num_left

    def measure(self, value: Any) -> int:
        """Return the bytes of the keys and strings in a value."""
        total, pending = 0, [value]
        while pending and self.num_left > 0:
            one = pending.pop()
            self.num_left -= 1
            if isinstance(one, dict):
                total += sum(map(_text_bytes, islice(one, self.num_left)))
                self.num_left -= len(one)
                pending.extend(islice(one.values(), max(0, self.num_left)))
            elif isinstance(one, list):
                pending.extend(one[: self.num_left])
            else:
                total += _text_bytes(one)
        return total


def _messages_bytes(messages: Any, tools: JsonTextMeter) -> int:
    if not isinstance(messages, list):
        return 0
    return sum(
        _content_bytes(message.get("content")) + tools.measure(message.get("tool_calls"))
        for message in messages
        if isinstance(message, dict)
    )


def _content_bytes(content: Any) -> int:
    if isinstance(content, list):
        return sum(_text_bytes(part.get("text")) for part in content if isinstance(part, dict))
    return _text_bytes(content)


def _prompt_bytes(prompt: Any) -> int:
    """Bytes of a prompt: a string, strings, token ids, or lists of token ids."""
    if not isinstance(prompt, list):
        return _text_bytes(prompt)
    # The first item decides, because a loop over a million token ids would take 0.2 s.
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
    except TypeError:  # not all of them are strings: the engine will refuse them
        return 0


def _text_bytes(text: Any) -> int:
    return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0
