"""Remembers the outcome of checks of bearer tokens by their hashes."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class TokenCache(Generic[T]):
    """The least recently used entry is dropped when it is full.

    max_entries: each takes about 0.3 KiB. now: seconds since the epoch.
    """

    def __init__(self, max_entries: int, now: Callable[[], float]) -> None:
        self._max_entries = max_entries
        self._now = now
        self._entries: OrderedDict[bytes, tuple[T, float]] = OrderedDict()

    def get(self, digest: bytes) -> T | None:
        """Return the outcome for a token, if it is still good."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        outcome, until_s = entry
        if self._now() >= until_s:
            del self._entries[digest]
            return None
        self._entries.move_to_end(digest)
        return outcome

    def put(self, digest: bytes, outcome: T, until_s: float) -> None:
        """Remember an outcome until a time."""
        self._entries[digest] = (outcome, until_s)
        self._entries.move_to_end(digest)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget all tokens."""
        self._entries.clear()
