"""Counts concurrent holders by key, such as the open requests of each service."""

from collections.abc import Iterator
from contextlib import contextmanager


class KeyedCount:
    """Number of current holders by key. A key at zero takes no memory."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def count(self, key: str) -> int:
        """Number of current holders of the key."""
        return self._counts.get(key, 0)

    @property
    def total(self) -> int:
        """Number of current holders of all keys."""
        return sum(self._counts.values())

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Count one more for the key while the block runs."""
        self._counts[key] = self.count(key) + 1
        try:
            yield
        finally:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
