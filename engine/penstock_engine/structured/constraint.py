"""A grammar and how far an answer has come in it."""

from dataclasses import dataclass

from llguidance import LLMatcher


@dataclass(slots=True)
class Compiled:
    """A grammar at its beginning.

    is_spent: what it has worked out so far, for all who use it, fills its limits.
    """

    matcher: LLMatcher
    eos_token_ids: frozenset[int]
    is_spent: bool = False

    def constraint(self) -> "GrammarConstraint":
        return GrammarConstraint(self)


class GrammarConstraint:
    """Of one sequence (core.constraint.Constraint)."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._matcher = compiled.matcher.deep_copy()
        self._num_ends = 0  # tokens of the end that the matcher has no part in

    @property
    def is_finished(self) -> bool:
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def fill(self, bits: memoryview) -> None:
        """No bit is set, and so nothing can be drawn, where the grammar meets its limits."""
        mask = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            self._compiled.is_spent = True
        else:
            bits[:] = mask[: len(bits)]

    def accept(self, token_id: int) -> bool:
        if self.is_finished:
            is_end = token_id in self._compiled.eos_token_ids
            self._num_ends += is_end
            return is_end
        return self._matcher.try_consume_tokens([token_id]) == 1

    def rollback(self, num_tokens: int) -> None:
        num_ends = min(num_tokens, self._num_ends)
        self._num_ends -= num_ends
        if num_tokens > num_ends:
            self._matcher.rollback(num_tokens - num_ends)
