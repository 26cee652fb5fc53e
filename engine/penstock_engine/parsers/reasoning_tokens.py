"""Counts the tokens of the reasoning in an answer."""

from collections.abc import Iterable
from copy import copy

from penstock_engine.parsers.parts import Part, Reasoning
from penstock_engine.parsers.reasoning_parser import ReasoningParser


class ReasoningTokenCounter:
    """Counts the tokens between the reasoning tags, without the tokens of the tags.

    A token that holds both reasoning and a part of a tag counts.
    is_open: whether the answer begins inside reasoning, without an opening tag of its own.
    """

    def __init__(self, *, is_open: bool) -> None:
        self._parser = ReasoningParser(is_open=is_open)
        self._pending: list[int] = []  # characters of each token that may belong to a tag
        self.num_tokens = 0

    @property
    def is_open(self) -> bool:
        """Whether the answer is inside its reasoning now."""
        return self._parser.is_open

    @property
    def is_finished(self) -> bool:
        """Whether no more reasoning can come."""
        return self._parser.is_finished

    @property
    def num_tokens_upper(self) -> int:
        """Upper bound of num_tokens: includes tokens that may turn out to belong to the closing tag."""
        return self.num_tokens + len(self._pending)

    def copy(self) -> "ReasoningTokenCounter":
        """Returns an independent copy."""
        other = copy(self)
        other._parser = copy(self._parser)
        other._pending = list(self._pending)
        return other

    def push(self, text: str) -> None:
        """Adds one token, given as text. An incomplete character may be any placeholder character."""
        was_tagged = self._parser.is_tagged
        self._pending.append(len(text))
        num_chars = _num_reasoning_chars(self._parser.push(text))
        if self._parser.is_tagged and not was_tagged:  # earlier tokens were the opening tag
            num_after = num_chars + self._parser.num_held_chars
            self._pending = [num_after] if num_after else []
        self._settle(num_chars)

    def finish(self) -> None:
        """Ends the count. Call it once, after the last token: a partial tag counts as reasoning."""
        self._settle(_num_reasoning_chars(self._parser.finish()))

    def _settle(self, num_chars: int) -> None:
        """Counts the pending tokens that contain any of the first `num_chars` characters."""
        start = num_settled = 0
        for length in self._pending:
            if start >= num_chars:
                break
            start += length
            num_settled += 1
        self.num_tokens += num_settled
        self._pending = [] if self.is_finished else self._pending[num_settled:]


def _num_reasoning_chars(parts: Iterable[Part]) -> int:
    return sum(len(part.text) for part in parts if isinstance(part, Reasoning))
