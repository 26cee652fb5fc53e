"""Forms that a prompt, or a part of one, has in the body of a request.

A kind measures the text of a value, and finds the beginning by which gateways recognize a conversation.
Values come from clients: one that is not of its kind has no text and no beginning.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

# Usual length of a token in English text. Each token id of a prompt counts as this many bytes.
BYTES_PER_TOKEN = 4
# Characters of a prompt or a message that enter the key of a conversation; enough to distinguish them.
TEXT_CHARACTERS = 256
# Types of content parts that are text; without a type, a part with `text` is text as well.
TEXT_PARTS = frozenset({None, "text", "input_text", "output_text"})
# Bound on the JSON values and keys of tools and their calls that are measured in one request. 128 tools of 20
# parameters have about 20,000; each takes 0.3 us of the event loop.
MAX_VALUES = 30_000


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
                total += sum(map(text_bytes, islice(one, self.num_left)))
                self.num_left -= len(one)
                pending.extend(islice(one.values(), max(0, self.num_left)))
            elif isinstance(one, list):
                pending.extend(one[: self.num_left])
            else:
                total += text_bytes(one)
        return total


class PromptKind(ABC):
    """Form of a field of a body that has a prompt, or a part of one."""

    @abstractmethod
    def text_bytes(self, value: Any, meter: JsonTextMeter) -> int:
        """Length in UTF-8 bytes of the text that the engine tokenizes.

        meter: for values of any depth; all parts of a prompt share it.
        """

    def is_text_only(self, value: Any) -> bool:
        """Whether the value has no images or other media."""
        return True

    def beginning(self, value: Any) -> Any:
        """JSON value by which a conversation is recognized; None: none can be."""
        return None


class Text(PromptKind):
    """A text, texts, token ids, or lists of token ids."""

    def text_bytes(self, value: Any, meter: JsonTextMeter) -> int:
        if not isinstance(value, list):
            return text_bytes(value)
        # The first item decides, because a loop over a million token ids would take 0.2 s.
        match value[:1]:
            case [int()]:
                return BYTES_PER_TOKEN * len(value)
            case [str()]:
                return _joined_bytes(value)
            case [list()]:
                return BYTES_PER_TOKEN * sum(len(ids) for ids in value if isinstance(ids, list))
            case _:
                return 0

    def beginning(self, value: Any) -> Any:
        # The first of several texts or lists of ids decides: all of them may have megabytes.
        first = value[0] if isinstance(value, list) and value else value
        match first:
            case str():
                return first[:TEXT_CHARACTERS]
            case list():
                return _token_ids(first)
            case int() if isinstance(value, list):
                return _token_ids(value)
            case _:
                return None


class Messages(PromptKind):
    """The messages of a chat."""

    def text_bytes(self, value: Any, meter: JsonTextMeter) -> int:
        if not isinstance(value, list):
            return 0
        return sum(
            _content_bytes(message.get("content")) + meter.measure(message.get("tool_calls"))
            for message in value
            if isinstance(message, dict)
        )

    def is_text_only(self, value: Any) -> bool:
        return not isinstance(value, list) or not any(
            _has_media(message.get("content")) for message in value if isinstance(message, dict)
        )

    def beginning(self, value: Any) -> list[str] | None:
        """Texts of the messages up to the first one of the user, which every later turn repeats."""
        if not isinstance(value, list):
            return None
        opening = []
        for message in value:
            if not isinstance(message, dict):
                return None
            opening.append(_opening_text(message.get("content")))
            if message.get("role") == "user":
                break
        return opening


class Tools(PromptKind):
    """The tools that a chat may call."""

    def text_bytes(self, value: Any, meter: JsonTextMeter) -> int:
        return meter.measure(value)


def _token_ids(values: list[Any]) -> list[int]:
    """The token ids at the beginning of a prompt. Other values, which an engine refuses, may be large."""
    return [value for value in values[:TEXT_CHARACTERS] if isinstance(value, int)]


TEXT, MESSAGES, TOOLS = Text(), Messages(), Tools()


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a request: the values of its fields, with their kinds."""

    parts: Sequence[tuple[PromptKind, Any]]

    @property
    def text_bytes(self) -> int:
        """Length in UTF-8 bytes of the text that the engine tokenizes.

        Blanks between JSON values, sampling parameters and images do not count.
        """
        meter = JsonTextMeter(MAX_VALUES)
        return sum(kind.text_bytes(value, meter) for kind, value in self.parts)

    @property
    def is_text_only(self) -> bool:
        """Whether the prompt is text alone: it has no images or other media."""
        return all(kind.is_text_only(value) for kind, value in self.parts)

    @property
    def beginning(self) -> Any:
        """JSON value by which the conversation is recognized: that of the first part; None: none can be."""
        for kind, value in self.parts:
            return kind.beginning(value)
        return None


def text_bytes(text: Any) -> int:
    """Length of a text in UTF-8 bytes; 0 if the value is no text."""
    return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0


def _joined_bytes(texts: list[Any]) -> int:
    try:
        return text_bytes("".join(texts))
    except TypeError:  # not all of them are strings: the engine will refuse them
        return 0


def _content_bytes(content: Any) -> int:
    if isinstance(content, list):
        return sum(text_bytes(part.get("text")) for part in content if isinstance(part, dict))
    return text_bytes(content)


def _has_media(content: Any) -> bool:
    return isinstance(content, list) and not all(
        isinstance(part, dict)
        and isinstance(part.get("text"), str)
        and part.get("type") in TEXT_PARTS
        for part in content
    )


def _opening_text(content: Any) -> str:
    if isinstance(content, list):  # images and other large parts are skipped
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = " ".join(text for text in texts if isinstance(text, str))
    return content[:TEXT_CHARACTERS] if isinstance(content, str) else ""
