"""Slots for requests to pods of several namespaces, of which none can take all."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedSlots:
    """A semaphore in which a namespace may hold one slot more while it holds fewer than are free.

    So one namespace gets a half at most, n get n/(n+1) together, and a namespace that holds none waits for
    nobody whose engines hang. Of those that wait, the namespace that holds the fewest is the next.
    """

    def __init__(self, size: int) -> None:
        self._num_free = size
        self._num_held: Counter[str] = Counter()
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
        self._num_free += 1
        self._num_held[namespace] -= 1
        if not self._num_held[namespace]:
            del self._num_held[namespace]
        self._grant()

    def _grant(self) -> None:
        while self._waiters:
            namespace = min(self._waiters, key=lambda each: self._num_held[each])
            if self._num_held[namespace] >= self._num_free:
                return
            waiters = self._waiters.pop(namespace)
            waiter = waiters.popleft()
            if waiters:  # behind those that hold as many
                self._waiters[namespace] = waiters
            if not waiter.done():  # else its task was cancelled
                self._num_free -= 1
                self._num_held[namespace] += 1
                waiter.set_result(None)
