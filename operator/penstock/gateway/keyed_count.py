"""Counts how many of something there are at this moment, by key."""

from collections.abc import Iterator
from contextlib import contextmanager


class KeyedCount:
    """A key without any takes no memory."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def of(self, key: str) -> int:
        return self._counts.get(key, 0)

    @property
    def total(self) -> int:
        return sum(self._counts.values())

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Counts one more of the key while the block runs."""
        self._counts[key] = self.of(key) + 1
        try:
            yield
        finally:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
