"""Queue whose owners, such as namespaces, take turns."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


@dataclass(slots=True)
class _Waiting(Generic[Item]):
    """Items of an owner that wait, in the order of their arrival."""

    urgent: dict[Item, None] = field(default_factory=dict)
    routine: dict[Item, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.urgent or self.routine)


class FairQueue(Generic[Item]):
    """Items that wait, each of them once. The next is of the owner with the fewest running ones.

    So an owner with many items delays another one by an item at most. Of an owner, urgent items are first.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting[Item]] = {}
        self._num_running: Counter[str] = Counter()
        # Owners of waiting items by the number of their running ones, the next owner first.
        self._turns: dict[int, dict[str, None]] = {}

    def add(self, owner: str, item: Item, *, is_urgent: bool = False) -> None:
        """Add an item. A waiting one becomes urgent if is_urgent, and stays so."""
        if owner not in self._waiting:
            self._waiting[owner] = _Waiting()
            self._join_turns(owner)
        waiting = self._waiting[owner]
        if is_urgent:
            waiting.routine.pop(item, None)
            waiting.urgent[item] = None
        elif item not in waiting.urgent:
            waiting.routine[item] = None

    def next_owner(self) -> str | None:
        """Return the owner whose turn it is; None if no item waits."""
        return next(iter(self._turns[min(self._turns)])) if self._turns else None

    def start(self, owner: str) -> Item:
        """Take the next item of an owner that has one. It runs until `finish`."""
        waiting = self._waiting[owner]
        items = waiting.urgent or waiting.routine
        item = next(iter(items))
        del items[item]
        self._leave_turns(owner)
        self._num_running[owner] += 1
        if waiting:
            self._join_turns(owner)
        else:
            del self._waiting[owner]
        return item

    def finish(self, owner: str) -> None:
        """End the run of an owner's item."""
        if owner in self._waiting:
            self._leave_turns(owner)
        self._num_running[owner] -= 1
        if owner in self._waiting:
            self._join_turns(owner)
        if not self._num_running[owner]:
            del self._num_running[owner]

    def _join_turns(self, owner: str) -> None:
        """Put an owner behind those with as many running items."""
        self._turns.setdefault(self._num_running[owner], {})[owner] = None

    def _leave_turns(self, owner: str) -> None:
        number = self._num_running[owner]
        del self._turns[number][owner]
        if not self._turns[number]:
            del self._turns[number]
