"""A grammar and how far an answer has come in it."""

from llguidance import LLMatcher


class GrammarConstraint:
    """Of one sequence (core.constraint.Constraint)."""

    def __init__(self, matcher: LLMatcher, eos_token_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._eos_token_ids = eos_token_ids
        self._num_ends = 0  # tokens of the end that the matcher has no part in

    @property
    def is_finished(self) -> bool:
        """Whether the answer is complete and nothing but its end can follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def fill(self, bits: memoryview) -> None:
        """Sets the bit of each token that may come next; the others are cleared.

        bits: little-endian words of 32 bits, one bit for each column of the logits.
        """
        mask = self._matcher.compute_bitmask()
        bits.cast("B")[:] = mask[: bits.nbytes]

    def accept(self, token_id: int) -> bool:
        """Moves on by one token; False, with nothing changed, when it may not come."""
        if self.is_finished:
            is_end = token_id in self._eos_token_ids
            self._num_ends += is_end
            return is_end
        return self._matcher.try_consume_tokens([token_id]) == 1

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last accepted tokens."""
        num_ends = min(num_tokens, self._num_ends)
        self._num_ends -= num_ends
        if num_tokens > num_ends:
            self._matcher.rollback(num_tokens - num_ends)
