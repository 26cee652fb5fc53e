"""Memory of the lines of one batch and of their answers, in a limit that all batches share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock_engine.http.fair_limit import FairLimit

# Least number of the longest lines that the limit has room for, so that several tenants have some.
MIN_LONGEST_LINES = 16


def memory_limit(num_bytes: int, max_line_bytes: int) -> FairLimit:
    """Make the limit of all batches. num_bytes: that have to be enough for some of the longest lines."""
    return FairLimit(max(num_bytes, MIN_LONGEST_LINES * max_line_bytes))


class LineMemory:
    """Memory of one batch's lines and answers. A tenant may hold half of what others leave of the limit."""

    def __init__(self, limit: FairLimit, tenant: str, max_line_bytes: int) -> None:
        self._limit, self._tenant, self._max_line_bytes = limit, tenant, max_line_bytes
        self._held = 0

    @property
    def has_room(self) -> bool:
        """Whether there is room for another line, however long it is."""
        limit, tenant = self._limit, self._tenant
        return limit.held_by(tenant) + self._max_line_bytes <= limit.bound(tenant)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold room for the longest line while one is read in the block. Check `has_room` before."""
        self.add(self._max_line_bytes)
        try:
            yield
        finally:
            self.add(-self._max_line_bytes)

    def add(self, num_bytes: int) -> None:
        """Hold so many bytes more, or less if negative."""
        self._limit.add(self._tenant, num_bytes)
        self._held += num_bytes

    @contextmanager
    def answer(self) -> Iterator[Callable[[int], bool]]:
        """Hold the memory of an answer until the block ends.

        Yields what takes room for more bytes of it: False if there is none.
        """
        held = 0

        def grow(num_bytes: int) -> bool:
            nonlocal held
            if not self._limit.take(self._tenant, num_bytes):
                return False
            held += num_bytes
            return True

        try:
            yield grow
        finally:
            self._limit.give_back(self._tenant, held)

    def close(self) -> None:
        """Give back what lines hold."""
        self.add(-self._held)
