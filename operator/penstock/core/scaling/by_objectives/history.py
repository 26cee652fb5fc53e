"""Histories: entries in the order of their times."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol


class Timed(Protocol):
    """Entry of a history."""

    @property
    def at_s(self) -> float: ...


def index_at(history: Sequence[Timed], at_s: float) -> int:
    """Index of the newest entry that is not later than at_s; of the oldest entry if all are later."""
    return max(0, bisect_right(history, at_s, key=_time) - 1)


def _time(entry: Timed) -> float:
    return entry.at_s
