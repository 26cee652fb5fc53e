"""Sequences sorted by priority, then by arrival."""

from bisect import bisect_left, insort

from penstock_engine.core.sequence import Sequence


class PriorityList(list[Sequence]):
    """Sequences sorted by Sequence.order, which no two of them share.

    A list rather than a heap, because every step iterates over it.
    """

    def add(self, sequence: Sequence) -> None:
        insort(self, sequence, key=_order)

    def remove(self, sequence: Sequence) -> None:
        index = bisect_left(self, sequence.order, key=_order)
        assert self[index] is sequence, f"{sequence} is not in this list"
        del self[index]


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.order
