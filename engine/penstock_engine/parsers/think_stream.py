"""Reasoning and content out of text, piece by piece."""

from enum import Enum

from penstock_engine.parsers.overlap import overlap
from penstock_engine.parsers.parts import Content, Part, Reasoning

THINK = "<think>"
THOUGHT = "</think>"


class _State(Enum):
    START = "nothing but white space so far"
    REASONING = "before the closing tag"
    CONTENT = "after it, or without any"


class ThinkStream:
    """Splits a text into reasoning and content.

    is_open: whether the answer begins within reasoning, without an opening tag of its own.
    is_tagged: whether an opening tag has been read.
    """

    def __init__(self, *, is_open: bool) -> None:
        self._is_open = is_open
        self._state = _State.START
        self._rest = ""
        self.is_tagged = False

    @property
    def is_open(self) -> bool:
        """Whether more text would be reasoning, unless it begins with a tag."""
        is_start = self._state is _State.START
        return self._state is _State.REASONING or (is_start and self._is_open)

    @property
    def is_over(self) -> bool:
        """Whether no more reasoning can come."""
        return self._state is _State.CONTENT

    @property
    def num_held_chars(self) -> int:
        """Characters at the end of the text that may belong to a tag."""
        return len(self._rest)

    def push(self, text: str) -> list[Part]:
        """What this piece makes certain."""
        self._rest += text
        parts: list[Part] = []
        if self._state is _State.START and not self._begin():
            return parts
        if self._state is _State.REASONING:
            at = self._rest.find(THOUGHT)
            end = at if at >= 0 else len(self._rest) - overlap(self._rest, THOUGHT)
            if end:
                parts.append(Reasoning(self._rest[:end]))
            self._rest = self._rest[end:]
            if at >= 0:
                self._rest = self._rest[len(THOUGHT) :]
                self._state = _State.CONTENT
        if self._state is _State.CONTENT and self._rest:
            parts.append(Content(self._rest))
            self._rest = ""
        return parts

    def finish(self) -> list[Part]:
        """What was held back, when no more text comes."""
        if not self._rest:
            return []
        is_reasoning = self._state is _State.REASONING or (
            self._state is _State.START and self._is_open
        )
        return [Reasoning(self._rest) if is_reasoning else Content(self._rest)]

    def _begin(self) -> bool:
        """Leaves the start; False when it takes more text."""
        text = self._rest.lstrip()
        if THINK.startswith(text) and text != THINK:
            return False
        if text.startswith(THINK):
            self._rest = text[len(THINK) :]
            self.is_tagged = True
            self._state = _State.REASONING
        else:
            self._state = _State.REASONING if self._is_open else _State.CONTENT
        return True
