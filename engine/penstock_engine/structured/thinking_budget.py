"""Ends the reasoning of an answer after a number of tokens, by forcing its closing tag."""

from collections import deque
from collections.abc import Callable

from penstock_engine.core.constraint import Constraint
from penstock_engine.parsers.reasoning_tokens import ReasoningTokenCounter

MAX_ROLLBACK_TOKENS = 64  # twice the drafts that a step can have


class ThinkingBudget:
    """Reasoning budget of one sequence. Implements core.constraint.Constraint, around an optional grammar.

    If the grammar does not allow the closing tag at once, for example inside a multi-token character,
    the tag is forced as soon as the grammar allows it.
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
        """decode: returns the text of one token. closing: tokens of the closing tag. num_tokens: maximum
        length of the reasoning. is_open: whether the answer begins inside reasoning."""
        self._grammar = grammar
        self._decode = decode
        self._closing = closing
        self._num_tokens = num_tokens
        # States after each of the last tokens: the counter, and the number of tag tokens forced so far.
        self._history = deque(
            [(ReasoningTokenCounter(is_open=is_open), 0)], maxlen=MAX_ROLLBACK_TOKENS + 1
        )

    @property
    def is_finished(self) -> bool:
        return self._grammar is not None and self._grammar.is_finished

    @property
    def has_failed(self) -> bool:
        return self._grammar is not None and self._grammar.has_failed

    def fill(self, bits: memoryview) -> None:
        if self._grammar is not None:
            self._grammar.fill(bits)
        else:
            bits[:] = b"\xff" * len(bits)
        forced = self._forced_token
        if forced is not None and bits[forced >> 3] >> (forced & 7) & 1:
            bits[:] = bytes(len(bits))
            bits[forced >> 3] = 1 << (forced & 7)

    def accept(self, token_id: int) -> bool:
        if self._grammar is not None and not self._grammar.accept(token_id):
            return False
        count, num_forced = self._history[-1]
        if not count.is_finished:
            num_forced = num_forced + 1 if token_id == self._forced_token else 0
            count = count.copy()
            count.push(self._decode(token_id))
        self._history.append((count, num_forced))
        return True

    def rollback(self, num_tokens: int) -> None:
        for _ in range(num_tokens):
            self._history.pop()
        if self._grammar is not None:
            self._grammar.rollback(num_tokens)

    @property
    def _forced_token(self) -> int | None:
        """The token of the closing tag to force next; None while the budget is not used up."""
        count, num_forced = self._history[-1]
        if not count.is_open or count.num_tokens_upper < self._num_tokens:
            return None
        return self._closing[num_forced] if num_forced < len(self._closing) else None
