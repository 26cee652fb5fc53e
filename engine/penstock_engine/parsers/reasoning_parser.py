"""Splits generated text into reasoning and content, chunk by chunk."""

from enum import Enum

from penstock_engine.parsers.partial_tag import partial_tag_overlap
from penstock_engine.parsers.parts import Content, Part, Reasoning

THINK_START = "<think>"
THINK_END = "</think>"


class _State(Enum):
    START = "only white space so far"
    REASONING = "before the closing tag"
    CONTENT = "after the closing tag, or no reasoning at all"


class ReasoningParser:
    """Splits a text at <think> and </think> into reasoning and content.

    is_open: whether the answer begins inside reasoning, without an opening tag of its own.
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
    def is_finished(self) -> bool:
        """Whether no more reasoning can come."""
        return self._state is _State.CONTENT

    @property
    def num_held_chars(self) -> int:
        """Number of characters held back because they may belong to a tag."""
        return len(self._rest)

    def push(self, text: str) -> list[Part]:
        """Returns the parts that are certain after this chunk."""
        self._rest += text
        parts: list[Part] = []
        if self._state is _State.START and not self._leave_start():
            return parts
        if self._state is _State.REASONING:
            at = self._rest.find(THINK_END)
            end = at if at >= 0 else len(self._rest) - partial_tag_overlap(self._rest, THINK_END)
            if end:
                parts.append(Reasoning(self._rest[:end]))
            self._rest = self._rest[end:]
            if at >= 0:
                self._rest = self._rest[len(THINK_END) :]
                self._state = _State.CONTENT
        if self._state is _State.CONTENT and self._rest:
            parts.append(Content(self._rest))
            self._rest = ""
        return parts

    def finish(self) -> list[Part]:
        """Returns the text held back so far. Call it once, after the last chunk."""
        if not self._rest:
            return []
        return [Reasoning(self._rest) if self.is_open else Content(self._rest)]

    def _leave_start(self) -> bool:
        """Leaves START, and skips the opening tag if there is one. Returns False if it needs more text."""
        text = self._rest.lstrip()
        if THINK_START.startswith(text) and text != THINK_START:
            return False
        if text.startswith(THINK_START):
            self._rest = text[len(THINK_START) :]
            self.is_tagged = True
            self._state = _State.REASONING
        else:
            self._state = _State.REASONING if self._is_open else _State.CONTENT
        return True
