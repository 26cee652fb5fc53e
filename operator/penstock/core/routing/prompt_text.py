"""Reads text within the values of a request's body, and finds the beginnings of its messages."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

# Characters of a prompt or a message that enter the key of a conversation; enough to distinguish them.
TEXT_CHARACTERS = 256
# Types of content parts that are text; without a type, a part with `text` is text as well.
TEXT_PARTS = frozenset({None, "text", "input_text", "output_text"})


class JsonTexts:
    """Reads the keys and strings of JSON values at any depth, up to a number of values and keys.

    num_left: how many more are read; further ones count as no text.
    """

    def __init__(self, num_left: int) -> None:
        self.num_left = num_left

    def read(self, value: Any) -> Iterator[str]:
        """Yield the keys and strings in a value, always in the same order."""
        pending = [value]
        while pending and self.num_left > 0:
            one = pending.pop()
            self.num_left -= 1
            if isinstance(one, dict):
                yield from islice(one, self.num_left)
                self.num_left -= len(one)
                pending.extend(islice(one.values(), max(0, self.num_left)))
            elif isinstance(one, list):
                pending.extend(one[: self.num_left])
            elif isinstance(one, str):
                yield one


def text(value: Any) -> Iterator[str]:
    """Yield a value if it is a text."""
    if isinstance(value, str):
        yield value


def joined(texts: list[Any]) -> Iterator[str]:
    """Yield texts as one; nothing if one of the values is no text."""
    try:
        yield "".join(texts)
    except TypeError:  # not all of them are strings: the engine will refuse them
        return


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


def document_texts(document: Any) -> Iterator[str]:
    """Texts of a document: a text, or an object with a text or with parts."""
    if isinstance(document, dict):
        yield from text(document.get("text"))
        yield from content_texts(document.get("content"))
    else:
        yield from text(document)


def content_texts(content: Any) -> Iterator[str]:
    """Texts of a content: a text, or parts of which some have a text."""
    if isinstance(content, list):
        for part in content:
            if isinstance(part, dict):
                yield from text(part.get("text"))
    else:
        yield from text(content)


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
