"""Counts the tokens of the reasoning in an answer."""

from collections.abc import Iterable
from copy import copy

from penstock_engine.parsers.parts import Part, Reasoning
from penstock_engine.parsers.think_stream import ThinkStream


class ReasoningCount:
    """Counts the tokens between the reasoning's tags, without the tokens of the tags.

    is_open: whether the answer begins within reasoning (ThinkStream). A token that has both reasoning
    and a part of a tag counts.
    """

    def __init__(self, *, is_open: bool) -> None:
        self._stream = ThinkStream(is_open=is_open)
        self._undecided: list[int] = []  # characters of each token that may belong to a tag
        self.num_tokens = 0

    @property
    def is_open(self) -> bool:
        """Whether the answer is within its reasoning."""
        return self._stream.is_open

    @property
    def is_over(self) -> bool:
        """Whether no more reasoning can come."""
        return self._stream.is_over

    @property
    def num_open_tokens(self) -> int:
        """num_tokens, plus the tokens that may turn out to be part of the closing tag."""
        return self.num_tokens + len(self._undecided)

    def copy(self) -> "ReasoningCount":
        """An independent copy."""
        other = copy(self)
        other._stream = copy(self._stream)
        other._undecided = list(self._undecided)
        return other

    def push(self, text: str) -> None:
        """Adds a token by its text. An incomplete character may be any placeholder character."""
        was_tagged = self._stream.is_tagged
        self._undecided.append(len(text))
        num_chars = _num_reasoning_chars(self._stream.push(text))
        if self._stream.is_tagged and not was_tagged:  # the tokens before this are the opening tag
            num_after = num_chars + self._stream.num_held_chars
            self._undecided = [num_after] if num_after else []
        self._settle(num_chars)

    def finish(self) -> None:
        """Ends the count. Call it after the last token, which may have left a part of a tag."""
        self._settle(_num_reasoning_chars(self._stream.finish()))

    def _settle(self, num_chars: int) -> None:
        """Counts the undecided tokens that have any of the first characters, which are reasoning."""
        start = num_settled = 0
        for length in self._undecided:
            if start >= num_chars:
                break
            start += length
            num_settled += 1
        self.num_tokens += num_settled
        self._undecided = [] if self.is_over else self._undecided[num_settled:]


def _num_reasoning_chars(parts: Iterable[Part]) -> int:
    return sum(len(part.text) for part in parts if isinstance(part, Reasoning))
