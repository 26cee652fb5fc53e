"""Interface between a sequence and what proposes its draft tokens without a model."""

from collections.abc import Sequence
from typing import Protocol


class Drafter(Protocol):
    """Proposes draft tokens for one sequence. The sequence may only grow between calls."""

    def index(self, tokens: Sequence[int], max_tokens: int) -> int:
        """Index at most max_tokens more of `tokens`. Returns how many were indexed."""
        ...

    def propose(self, tokens: Sequence[int], max_drafts: int) -> tuple[int, ...]:
        """Propose at most max_drafts tokens that may follow `tokens`.

        Returns an empty tuple until all of `tokens` are indexed.
        """
        ...
