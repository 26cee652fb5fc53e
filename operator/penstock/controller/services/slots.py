"""Slots of the work queue: changed keys get them before keys that are only checked again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.clients.kubernetes.informer import Key

# One slot in 8 goes to a waiting routine key, so that changes never keep others from being checked; urgent
# keys lose at most an eighth.
SLOTS_PER_ROUTINE = 8


class Slots:
    """A semaphore with two classes of waiters, each in the order of arrival. A key waits once at a time."""

    def __init__(self, size: int) -> None:
        self._num_free = size
        self._urgent: dict[Key, asyncio.Future[None]] = {}
        self._routine: dict[Key, asyncio.Future[None]] = {}
        self._num_urgent_in_a_row = 0

    @asynccontextmanager
    async def hold(self, key: Key, *, is_urgent: bool) -> AsyncIterator[None]:
        """Wait for a slot, and hold it during the block."""
        waiter = asyncio.get_running_loop().create_future()
        (self._urgent if is_urgent else self._routine)[key] = waiter
        self._grant()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release()
            raise
        finally:
            self._urgent.pop(key, None)
            self._routine.pop(key, None)
        try:
            yield
        finally:
            self._release()

    def promote(self, key: Key) -> None:
        """Make a waiting key urgent."""
        if key in self._routine:
            self._urgent[key] = self._routine.pop(key)

    def _release(self) -> None:
        self._num_free += 1
        self._grant()

    def _grant(self) -> None:
        while self._num_free and (self._urgent or self._routine):
            is_urgent = bool(self._urgent) and not (
                self._routine and self._num_urgent_in_a_row >= SLOTS_PER_ROUTINE - 1
            )
            waiters = self._urgent if is_urgent else self._routine
            self._num_urgent_in_a_row = self._num_urgent_in_a_row + 1 if is_urgent else 0
            waiter = waiters.pop(next(iter(waiters)))
            if not waiter.done():  # else its task was cancelled
                self._num_free -= 1
                waiter.set_result(None)
