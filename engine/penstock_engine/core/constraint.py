"""What a grammar tells scheduler and sampler: which tokens may come next."""

from typing import Protocol


class Constraint(Protocol):
    """State of one sequence in its grammar. The sequence owns it; one thread uses it."""

    @property
    def is_finished(self) -> bool:
        """Whether the text is complete and nothing but its end could follow."""
        ...

    def fill(self, bits: memoryview) -> None:
        """Writes one bit for each token, lowest bit first: 1 where the token may come next.

        bits: bytes, a multiple of four, all zero before.
        """
        ...

    def accept(self, token_id: int) -> bool:
        """Moves on by one token. False, and unmoved, when that token may not come next."""
        ...

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last accepted tokens: drafts that were tried."""
        ...
