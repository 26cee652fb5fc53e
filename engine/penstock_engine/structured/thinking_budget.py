"""Ends the reasoning of an answer after a number of tokens, by forcing its closing tag."""

from collections import deque
from collections.abc import Callable

from penstock_engine.core.constraint import Constraint
from penstock_engine.parsers.reasoning_count import ReasoningCount

MAX_ROLLBACK_TOKENS = 64  # twice the drafts that a step can have


class ThinkingBudget:
    """The budget of one sequence, as a core.constraint.Constraint around an optional grammar.

    Where the grammar does not allow the closing tag, for example within a character, the tag is forced
    as soon as the grammar allows it.
    """

    def __init__(
        self,
        grammar: Constraint | None,
        decode: Callable[[int], str],
        closing: tuple[int, ...],
        *,
        num_tokens: int,
        is_open: bool,
    ) -> None:
        """decode: text of one token. closing: tokens of the closing tag. num_tokens: maximum length
        of the reasoning. is_open: whether the answer begins within reasoning."""
        self._grammar = grammar
        self._decode = decode
        self._closing = closing
        self._num_tokens = num_tokens
        # After each of the last tokens: what was counted, and how many tokens of the tag were forced.
        self._past = deque([(ReasoningCount(is_open=is_open), 0)], maxlen=MAX_ROLLBACK_TOKENS + 1)

    @property
    def is_finished(self) -> bool:
        return self._grammar is not None and self._grammar.is_finished

    def fill(self, bits: memoryview) -> None:
        if self._grammar is not None:
            self._grammar.fill(bits)
        else:
            bits[:] = b"\xff" * len(bits)
        forced = self._forced
        if forced is not None and bits[forced >> 3] >> (forced & 7) & 1:
            bits[:] = bytes(len(bits))
            bits[forced >> 3] = 1 << (forced & 7)

    def accept(self, token_id: int) -> bool:
        if self._grammar is not None and not self._grammar.accept(token_id):
            return False
        count, num_forced = self._past[-1]
        if not count.is_over:
            num_forced = num_forced + 1 if token_id == self._forced else 0
            count = count.copy()
            count.push(self._decode(token_id))
        self._past.append((count, num_forced))
        return True

    def rollback(self, num_tokens: int) -> None:
        for _ in range(num_tokens):
            self._past.pop()
        if self._grammar is not None:
            self._grammar.rollback(num_tokens)

    @property
    def _forced(self) -> int | None:
        """The token of the closing tag that is forced next; None while the budget is not spent."""
        count, num_forced = self._past[-1]
        if not count.is_open or count.num_open_tokens < self._num_tokens:
            return None
        return self._closing[num_forced] if num_forced < len(self._closing) else None
