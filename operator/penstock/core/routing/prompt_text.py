"""Measures text within the values of a request's body, and finds the beginnings of its messages."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

# Characters of a prompt or a message that enter the key of a conversation; enough to distinguish them.
TEXT_CHARACTERS = 256
# Types of content parts that are text; without a type, a part with `text` is text as well.
TEXT_PARTS = frozenset({None, "text", "input_text", "output_text"})


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


def text_bytes(text: Any) -> int:
    """Length of a text in UTF-8 bytes; 0 if the value is no text."""
    return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0


def joined_bytes(texts: list[Any]) -> int:
    """Total length of texts in UTF-8 bytes; 0 if one of the values is no text."""
    try:
        return text_bytes("".join(texts))
    except TypeError:  # not all of them are strings: the engine will refuse them
        return 0


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def blocks(messages: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the blocks of Anthropic's messages; a text is one block."""
    for message in as_list(messages):
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            yield {"text": content}
        yield from (block for block in as_list(content) if isinstance(block, dict))


def documents(value: Any) -> list[Any]:
    """Return the documents of a value that is a list of them, or one document."""
    return value if isinstance(value, list) else [value]


def document_bytes(document: Any) -> int:
    """Bytes of a document: a text, or an object with a text or with parts."""
    if isinstance(document, dict):
        return text_bytes(document.get("text")) + content_bytes(document.get("content"))
    return text_bytes(document)


def content_bytes(content: Any) -> int:
    """Bytes of the text of a content: a text, or parts of which some have a text."""
    if isinstance(content, list):
        return sum(text_bytes(part.get("text")) for part in content if isinstance(part, dict))
    return text_bytes(content)


def has_media(content: Any) -> bool:
    """Whether a content has a part that is no text."""
    return isinstance(content, list) and not all(
        isinstance(part, dict)
        and isinstance(part.get("text"), str)
        and part.get("type") in TEXT_PARTS
        for part in content
    )


def opening_text(content: Any) -> str:
    """Return the first characters of the text of a content."""
    if isinstance(content, list):  # images and other large parts are skipped
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = " ".join(text for text in texts if isinstance(text, str))
    return content[:TEXT_CHARACTERS] if isinstance(content, str) else ""
