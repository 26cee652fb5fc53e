"""Compiled grammars, and the state of one sequence in a grammar."""

from dataclasses import dataclass

from llguidance import LLMatcher


@dataclass(slots=True)
class CompiledGrammar:
    """A compiled grammar in its start state, shared by all sequences that use it.

    is_exhausted: whether the lexer states computed so far have reached the limits.
    """

    matcher: LLMatcher
    eos_token_ids: frozenset[int]
    is_exhausted: bool = False

    def new_constraint(self) -> "GrammarConstraint":
        """Returns a constraint for one sequence."""
        return GrammarConstraint(self)


class GrammarConstraint:
    """The grammar state of one sequence. Implements core.constraint.Constraint."""

    def __init__(self, compiled: CompiledGrammar) -> None:
        self._compiled = compiled
        self._matcher = compiled.matcher.deep_copy()
        self._num_ends = 0  # end-of-sequence tokens accepted after the matcher had stopped

    @property
    def is_finished(self) -> bool:
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def fill(self, bits: memoryview) -> None:
        """Sets the bits of the allowed tokens; none, so that sampling fails, once a limit is reached."""
        mask = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            self._compiled.is_exhausted = True
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
