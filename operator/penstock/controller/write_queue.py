"""Queue of objects to write, in which namespaces take turns."""

from collections import Counter
from dataclasses import dataclass, field

from penstock.clients.informer import Key


@dataclass(slots=True)
class _Waiting:
    """Keys of a namespace that wait, in the order of their arrival."""

    urgent: dict[Key, None] = field(default_factory=dict)
    routine: dict[Key, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.urgent or self.routine)


class WriteQueue:
    """Keys that wait, each of them once. The next is of the namespace with the fewest running writes.

    So a namespace with many changes delays another one by a write at most. Within a namespace urgent keys are
    first.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._num_running: Counter[str] = Counter()

    def add(self, key: Key, *, is_urgent: bool) -> None:
        """Add a key. One that waits stays urgent, or becomes it."""
        waiting = self._waiting.setdefault(key[0], _Waiting())
        if is_urgent:
            waiting.routine.pop(key, None)
            waiting.urgent[key] = None
        elif key not in waiting.urgent:
            waiting.routine[key] = None

    def start(self) -> Key | None:
        """Take the next key, whose write runs until `finish`; None if no key waits."""
        if not self._waiting:
            return None
        namespace = min(self._waiting, key=lambda each: self._num_running[each])
        waiting = self._waiting.pop(namespace)
        keys = waiting.urgent or waiting.routine
        key = next(iter(keys))
        del keys[key]
        if waiting:  # behind the namespaces with as many running writes
            self._waiting[namespace] = waiting
        self._num_running[namespace] += 1
        return key

    def finish(self, key: Key) -> None:
        """End the write of a key."""
        self._num_running[key[0]] -= 1
        if not self._num_running[key[0]]:
            del self._num_running[key[0]]
