"""Counts the tokens of the reasoning in an answer."""

from copy import copy

from penstock_engine.parsers.parts import Reasoning
from penstock_engine.parsers.think_stream import ThinkStream


class ReasoningCount:
    """Number of tokens between the reasoning's tags, without those of the tags.

    is_open: as in ThinkStream. A token that has both reasoning and a part of a tag counts.
    """

    def __init__(self, *, is_open: bool) -> None:
        self._stream = ThinkStream(is_open=is_open)
        self._num_undecided = 0  # tokens whose text may belong to a tag
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
        """As num_tokens, with those that may turn out to be of the closing tag."""
        return self.num_tokens + self._num_undecided

    def copy(self) -> "ReasoningCount":
        """A count that goes on by itself."""
        other = copy(self)
        other._stream = copy(self._stream)
        return other

    def push(self, text: str) -> None:
        """Add a token with the text that became certain with it."""
        was_tagged = self._stream.is_tagged
        self._num_undecided += 1
        parts = self._stream.push(text)
        if self._stream.is_tagged and not was_tagged:
            self._num_undecided = 1 if parts else 0  # those before were the opening tag
        self._settle(any(isinstance(part, Reasoning) for part in parts), is_certain=bool(parts))

    def finish(self, text: str) -> None:
        """Add the text that was held back until the last token."""
        parts = [*self._stream.push(text), *self._stream.finish()]
        self._settle(any(isinstance(part, Reasoning) for part in parts), is_certain=True)

    def _settle(self, is_reasoning: bool, *, is_certain: bool) -> None:
        if is_certain:
            self.num_tokens += self._num_undecided if is_reasoning else 0
            self._num_undecided = 0
