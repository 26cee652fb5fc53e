"""Slots for requests to pods of several namespaces, of which none can take all."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock_engine.fair_limit import FairLimit


class SharedSlots:
    """A semaphore in which a namespace may hold half of the slots that the others leave.

    So requests to hung engines of one namespace leave slots to the others. Of 64 slots, namespaces that fill
    their part one after the other get 32, 16, 8, 4, 2, 1 and 1; a further one waits. Of those that wait, the
    namespace that holds the fewest is the next.
    """

    def __init__(self, size: int) -> None:
        self._limit = FairLimit(size)
        self._waiters: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def hold(self, namespace: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it during the block."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(namespace, deque()).append(waiter)
        self._grant()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release(namespace)
            raise
        try:
            yield
        finally:
            self._release(namespace)

    def _release(self, namespace: str) -> None:
        self._limit.give_back(namespace, 1)
        self._grant()

    def _grant(self) -> None:
        while self._waiters:
            namespace = min(self._waiters, key=self._limit.held_by)
            if not self._limit.take(namespace, 1):
                return
            waiters = self._waiters.pop(namespace)
            waiter = waiters.popleft()
            if waiters:  # behind those that hold as many
                self._waiters[namespace] = waiters
            if waiter.done():  # its task was cancelled
                self._limit.give_back(namespace, 1)
            else:
                waiter.set_result(None)
