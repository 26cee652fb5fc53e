"""Sequences in order: of priority, then of arrival."""

from bisect import bisect_left, insort

from penstock_engine.core.sequence import Sequence


class Line(list[Sequence]):
    """Sorted by Sequence.order, which no two sequences share. A list, as each step goes through it."""

    def add(self, sequence: Sequence) -> None:
        insort(self, sequence, key=_order)

    def remove(self, sequence: Sequence) -> None:
        index = bisect_left(self, sequence.order, key=_order)
        assert self[index] is sequence, f"{sequence} is not in this line"
        del self[index]


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.order
