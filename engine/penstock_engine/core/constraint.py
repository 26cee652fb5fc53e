"""Interface between grammars and the scheduler and sampler: the tokens that are allowed next."""

from typing import Protocol


class Constraint(Protocol):
    """Grammar state of one sequence. Not thread-safe."""

    @property
    def is_finished(self) -> bool:
        """Whether the text is complete and the grammar allows no further token."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether the grammar has reached a limit of its cost, so that it allows no token."""
        ...

    def fill(self, bits: memoryview) -> None:
        """Write the mask of allowed next tokens: one bit for each token id, lowest bit first.

        bits: a zeroed buffer whose length in bytes is a multiple of four.
        """
        ...

    def accept(self, token_id: int) -> bool:
        """Advance by one token. Returns False, with nothing changed, if the token is not allowed."""
        ...

    def rollback(self, num_tokens: int) -> None:
        """Undo the last num_tokens calls of `accept`, to reject drafts."""
        ...
