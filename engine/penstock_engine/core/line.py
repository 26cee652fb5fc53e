"""Sequences in order: of priority, then of arrival."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from penstock_engine.core.sequence import Sequence


class Line:
    """Sorted by Sequence.order, which no two sequences share."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def __getitem__(self, index: int) -> Sequence:
        return self._sequences[index]

    def add(self, sequence: Sequence) -> None:
        insort(self._sequences, sequence, key=_order)

    def remove(self, sequence: Sequence) -> None:
        index = bisect_left(self._sequences, sequence.order, key=_order)
        assert self._sequences[index] is sequence, f"{sequence} is not in this line"
        del self._sequences[index]

    def pop(self) -> Sequence:
        """Takes out the last."""
        return self._sequences.pop()


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.order
