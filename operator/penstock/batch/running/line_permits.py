"""Bound on the lines of all batches that are at the gateway at a time. Tenants take turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.core.fair_queue import FairQueue


class LinePermits:
    """Permits to send a line. num_held: those that are held now."""

    def __init__(self, num_permits: int) -> None:
        self._num_free = num_permits
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self.num_held = 0

    @asynccontextmanager
    async def hold(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a permit, and hold it in the block."""
        permit = asyncio.get_running_loop().create_future()
        self._queue.add(tenant, permit)
        self._grant()
        try:
            await permit
            yield
        finally:
            if permit.done() and not permit.cancelled():
                self._release(tenant)
            else:
                permit.cancel()

    def _grant(self) -> None:
        while self._num_free and (tenant := self._queue.next_owner()) is not None:
            permit = self._queue.start(tenant)
            if permit.done():  # the line that waited for it was stopped
                self._queue.finish(tenant)
                continue
            self._num_free -= 1
            self.num_held += 1
            permit.set_result(None)

    def _release(self, tenant: str) -> None:
        self._num_free += 1
        self.num_held -= 1
        self._queue.finish(tenant)
        self._grant()
