"""Compiled grammars, and the state of one sequence in a grammar."""

from collections.abc import Callable
from dataclasses import dataclass

from llguidance import LLMatcher

from penstock_engine.structured.number_limit import NumberLimit

# Tokens that a sequence must have got between two compilations of its grammar. A compilation repeats all
# tokens within a step: up to 0.12 s at 16,500 tokens, in which no sequence gets a token. A grammar that
# reaches the limits sooner is hostile, and fails.
MIN_TOKENS_PER_MATCHER = 256


@dataclass(slots=True)
class CompiledGrammar:
    """A compiled grammar in its start state, shared by all sequences that use it.

    compile_again: returns the grammar in its start state, without the lexer states computed so far.
    number_limit: ends long numbers, if the grammar is one of JSON. is_exhausted: whether the lexer states
    have reached the limits.
    """

    matcher: LLMatcher
    eos_token_ids: frozenset[int]
    compile_again: Callable[[], LLMatcher]
    number_limit: NumberLimit | None = None
    is_exhausted: bool = False

    def new_constraint(self) -> "GrammarConstraint":
        """Returns a constraint for one sequence."""
        return GrammarConstraint(self)


class GrammarConstraint:
    """The grammar state of one sequence. Implements core.constraint.Constraint.

    The lexer computes its states when they are first met, up to a limit. A bounded string, for example, has
    some for each character. At the limit the sequence gets a matcher of its own, which has only the states
    that its own tokens need.
    """

    def __init__(self, compiled: CompiledGrammar) -> None:
        self._compiled = compiled
        self._matcher = compiled.matcher.deep_copy()
        self._tokens: list[int] = []  # accepted before the matcher stopped
        self._num_tokens_at_start = 0  # of the present matcher
        self._num_ends = 0  # end-of-sequence tokens accepted after the matcher had stopped
        self._has_failed = False

    @property
    def is_finished(self) -> bool:
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def has_failed(self) -> bool:
        return self._has_failed

    def fill(self, bits: memoryview) -> None:
        """Sets the bits of the allowed tokens; none, so that sampling fails, once a limit is reached."""
        mask = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            self._compiled.is_exhausted = True
            self._has_failed = not self._replace_matcher()
            mask = self._matcher.compute_bitmask()
        if self._has_failed:
            return
        bits[:] = mask[: len(bits)]
        if self._compiled.number_limit is not None:
            self._compiled.number_limit.apply(self._tokens, bits)

    def accept(self, token_id: int) -> bool:
        if self.is_finished:
            is_end = token_id in self._compiled.eos_token_ids
            self._num_ends += is_end
            return is_end
        if self._matcher.try_consume_tokens([token_id]) != 1:
            return False
        self._tokens.append(token_id)
        return True

    def rollback(self, num_tokens: int) -> None:
        num_ends = min(num_tokens, self._num_ends)
        self._num_ends -= num_ends
        num_consumed = num_tokens - num_ends
        if num_consumed:
            self._matcher.rollback(num_consumed)
            del self._tokens[-num_consumed:]

    def _replace_matcher(self) -> bool:
        """Brings a new matcher to the state of this one. Returns False if that reaches the limits too."""
        if len(self._tokens) - self._num_tokens_at_start < MIN_TOKENS_PER_MATCHER:
            return False
        self._num_tokens_at_start = len(self._tokens)
        self._matcher = self._compiled.compile_again()
        self._matcher.try_consume_tokens(self._tokens)
        self._matcher.compute_bitmask()
        return not self._matcher.is_error()
