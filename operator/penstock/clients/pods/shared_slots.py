"""Slots for work of several owners, such as namespaces, of whom none can take all."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from penstock.core.fair_queue import FairQueue
from penstock_engine.http.fair_limit import FairLimit


class SharedSlots:
    """A semaphore in which an owner may hold half of the slots that the others leave.

    So requests to hung engines of one namespace leave slots to the others. Of 64 slots, owners that fill
    their part one after the other get 32, 16, 8, 4, 2, 1 and 1; a further one waits. Of those that wait, the
    owner that holds the fewest is the next.
    """

    def __init__(self, size: int) -> None:
        self._limit = FairLimit(size)
        self._waiters = FairQueue[asyncio.Future[None]]()

    @property
    def num_held(self) -> int:
        """Slots that are held now."""
        return self._limit.held

    @asynccontextmanager
    async def hold(self, owner: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it during the block."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(owner, waiter)
        self._grant()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release(owner)
            raise
        try:
            yield
        finally:
            self._release(owner)

    @contextmanager
    def hold_now(self, owner: str) -> Iterator[bool]:
        """Hold a slot during the block, or yield False at once if the owner may hold no further one."""
        is_held = self._limit.take(owner, 1)
        try:
            yield is_held
        finally:
            if is_held:
                self._limit.give_back(owner, 1)
                self._grant()

    def _release(self, owner: str) -> None:
        self._give_back(owner)
        self._grant()

    def _grant(self) -> None:
        while (owner := self._waiters.next_owner()) is not None:
            if not self._limit.take(owner, 1):
                return  # nor may those that hold more
            waiter = self._waiters.start(owner)
            if waiter.done():  # its task was cancelled
                self._give_back(owner)
            else:
                waiter.set_result(None)

    def _give_back(self, owner: str) -> None:
        self._limit.give_back(owner, 1)
        self._waiters.finish(owner)
