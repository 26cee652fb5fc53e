"""Forms that a prompt, or a part of one, has in the body of a request.

A kind reads the text of a value, and finds the beginning by which gateways recognize a conversation.
Values come from clients: one that is not of its kind has no text and no beginning.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.routing.prompt_text import (
    TEXT_CHARACTERS,
    JsonTexts,
    as_list,
    blocks,
    content_texts,
    document_texts,
    documents,
    has_media,
    joined,
    opening_text,
    text,
)

# Usual length of a token in English text. Each token id of a prompt counts as this many bytes.
BYTES_PER_TOKEN = 4
# Types of Anthropic's blocks without media of their own; a result of a tool may have some in its content.
TEXT_BLOCKS = frozenset({None, "text", "thinking", "redacted_thinking", "tool_use", "tool_result"})
# Fields of a block that have text, or parts with text.
BLOCK_TEXTS = ("text", "thinking", "content")
# Fields of an item of a response's input that have text.
ITEM_TEXTS = ("content", "arguments", "input", "output")
# Bound on the JSON values and keys of tools and their calls that are read in one request. 128 tools of 20
# parameters have about 20,000; each takes 0.3 us of the event loop.
MAX_VALUES = 30_000


class PromptKind(ABC):
    """Form of a field of a body that has a prompt, or a part of one."""

    @abstractmethod
    def texts(self, value: Any, json_texts: JsonTexts) -> Iterator[str]:
        """Yield the text that the engine tokenizes, in its order.

        json_texts: reads values of any depth; all parts of a prompt share it.
        """

    def encoded(self, value: Any, json_texts: JsonTexts) -> bytes:
        """The text in UTF-8. JSON may escape half a character."""
        return "".join(self.texts(value, json_texts)).encode("utf-8", "surrogatepass")

    def is_text_only(self, value: Any) -> bool:
        """Whether the value has no images or other media."""
        return True

    def beginning(self, value: Any) -> Any:
        """JSON value by which a conversation is recognized; None: none can be."""
        return None

    def num_prompts(self, value: Any) -> int:
        """Number of prompts, each of which gets answers of its own."""
        return 1


class Text(PromptKind):
    """A text, texts, token ids, or lists of token ids."""

    def texts(self, value: Any, json_texts: JsonTexts) -> Iterator[str]:
        return joined(value) if isinstance(value, list) else text(value)

    def encoded(self, value: Any, json_texts: JsonTexts) -> bytes:
        # The first item decides, because a loop over a million token ids would take 0.2 s.
        match value:
            case [int(), *_]:
                return _encoded_ids(value)
            case [list(), *_]:
                return b"".join(_encoded_ids(ids) for ids in value if isinstance(ids, list))
            case _:
                return super().encoded(value, json_texts)

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

    def num_prompts(self, value: Any) -> int:
        is_many = isinstance(value, list) and isinstance(next(iter(value), None), str | list)
        return len(value) if is_many else 1


class Messages(PromptKind):
    """The messages of a chat."""

    def texts(self, value: Any, json_texts: JsonTexts) -> Iterator[str]:
        for message in as_list(value):
            if isinstance(message, dict):
                yield from content_texts(message.get("content"))
                if (calls := message.get("tool_calls")) is not None:
                    yield from json_texts.read(calls)

    def is_text_only(self, value: Any) -> bool:
        return not isinstance(value, list) or not any(
            has_media(message.get("content")) for message in value if isinstance(message, dict)
        )

    def beginning(self, value: Any) -> list[str] | None:
        """Texts of the messages up to the first one of the user, which every later turn repeats."""
        if not isinstance(value, list):
            return None
        opening = []
        for message in value:
            if not isinstance(message, dict):
                return None
            opening.append(opening_text(message.get("content")))
            if message.get("role") == "user":
                break
        return opening


class Blocks(Messages):
    """The messages of Anthropic's API, whose blocks may be calls of tools and their results."""

    def texts(self, value: Any, json_texts: JsonTexts) -> Iterator[str]:
        for block in blocks(value):  # 4 MiB have 80,000, so only what is there is read
            for name in BLOCK_TEXTS:
                if (content := block.get(name)) is not None:
                    yield from content_texts(content)
            if (call := block.get("input")) is not None:
                yield from json_texts.read(call)

    def is_text_only(self, value: Any) -> bool:
        return all(
            block.get("type") in TEXT_BLOCKS and not has_media(block.get("content"))
            for block in blocks(value)
        )


class Items(Messages):
    """The input of a response: a text, or messages, calls of tools and their results."""

    def texts(self, value: Any, json_texts: JsonTexts) -> Iterator[str]:
        yield from text(value)
        for item in as_list(value):
            if isinstance(item, dict):
                for name in ITEM_TEXTS:
                    yield from content_texts(item.get(name))

    def is_text_only(self, value: Any) -> bool:
        return not isinstance(value, list) or not any(
            has_media(item.get(name))
            for item in value
            if isinstance(item, dict)
            for name in ("content", "output")
        )

    def beginning(self, value: Any) -> list[str] | None:
        message = {"role": "user", "content": value}
        return super().beginning([message] if isinstance(value, str) else value)


class Conversations(PromptKind):
    """The messages of several chats."""

    def texts(self, value: Any, json_texts: JsonTexts) -> Iterator[str]:
        for each in as_list(value):
            yield from MESSAGES.texts(each, json_texts)

    def is_text_only(self, value: Any) -> bool:
        return all(MESSAGES.is_text_only(each) for each in as_list(value))

    def beginning(self, value: Any) -> list[str] | None:
        """Return the beginning of the first chat."""
        return MESSAGES.beginning(value[0]) if as_list(value) else None

    def num_prompts(self, value: Any) -> int:
        return max(1, len(as_list(value)))


class Content(PromptKind):
    """A text, or a list of parts with a text."""

    def texts(self, value: Any, json_texts: JsonTexts) -> Iterator[str]:
        return content_texts(value)

    def is_text_only(self, value: Any) -> bool:
        return not has_media(value)

    def beginning(self, value: Any) -> str | None:
        return opening_text(value) or None


class Documents(PromptKind):
    """Documents or queries to score: a text or an object with one, or a list of them."""

    def texts(self, value: Any, json_texts: JsonTexts) -> Iterator[str]:
        for each in documents(value):
            yield from document_texts(each)

    def is_text_only(self, value: Any) -> bool:
        return not any(
            has_media(each.get("content")) or (each.get("text") or each.get("content")) is None
            for each in documents(value)
            if isinstance(each, dict)
        )

    def beginning(self, value: Any) -> str | None:
        for each in documents(value):
            return opening_text(each.get("text") if isinstance(each, dict) else each) or None
        return None


class Tools(PromptKind):
    """The tools that a chat may call."""

    def texts(self, value: Any, json_texts: JsonTexts) -> Iterator[str]:
        return json_texts.read(value)


def _encoded_ids(values: list[Any]) -> bytes:
    """Token ids as BYTES_PER_TOKEN bytes each; zeros if there are other values, which an engine refuses."""
    try:
        return array("I", values).tobytes()
    except (TypeError, OverflowError):
        return bytes(BYTES_PER_TOKEN * len(values))


def _token_ids(values: list[Any]) -> list[int]:
    """The token ids at the beginning of a prompt. Other values, which an engine refuses, may be large."""
    return [value for value in values[:TEXT_CHARACTERS] if isinstance(value, int)]


TEXT, MESSAGES, TOOLS = Text(), Messages(), Tools()
BLOCKS, ITEMS, CONVERSATIONS = Blocks(), Items(), Conversations()
CONTENT, DOCUMENTS = Content(), Documents()


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a request: the values of its fields, with their kinds."""

    parts: Sequence[tuple[PromptKind, Any]]

    @property
    def encoded(self) -> bytes:
        """The text that the engine tokenizes, in UTF-8, with the first part last: tools come before messages.

        Blanks between JSON values, sampling parameters and images are left out.
        """
        json_texts = JsonTexts(MAX_VALUES)
        parts = [kind.encoded(value, json_texts) for kind, value in self.parts]
        return b"".join(reversed(parts))

    @property
    def is_text_only(self) -> bool:
        """Whether the prompt is text alone: it has no images or other media."""
        return all(kind.is_text_only(value) for kind, value in self.parts)

    @property
    def num_prompts(self) -> int:
        """Number of prompts, each of which gets answers of its own."""
        return max((kind.num_prompts(value) for kind, value in self.parts), default=1)

    @property
    def beginning(self) -> Any:
        """JSON value by which the conversation is recognized: that of the first part; None: none can be."""
        for kind, value in self.parts:
            return kind.beginning(value)
        return None
