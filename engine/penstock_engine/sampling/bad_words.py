"""Finds the tokens that would complete a bad word."""

from collections import defaultdict
from collections.abc import Callable, Sequence


class BadWords:
    """The bad words of a request, sorted so that a step looks only at those that the last token can begin."""

    def __init__(self, words: Sequence[tuple[int, ...]]) -> None:
        """words: their tokens."""
        self._single = frozenset(word[0] for word in words if len(word) == 1)
        # The other words by the token before their last one: the tokens up to it, and the last one.
        self._longer: dict[int, list[tuple[list[int], int]]] = defaultdict(list)
        for *beginning, last in words:
            if beginning:
                self._longer[beginning[-1]].append((beginning, last))

    def next_tokens(self, output_tail: Callable[[int], list[int]]) -> frozenset[int]:
        """Returns the tokens that would complete a word. output_tail: returns the last n generated tokens."""
        before = output_tail(1) if self._longer else []
        candidates = self._longer.get(before[0], ()) if before else ()
        if not candidates:
            return self._single
        tail = output_tail(max(len(beginning) for beginning, _ in candidates))
        return self._single.union(
            last for beginning, last in candidates if tail[-len(beginning) :] == beginning
        )
