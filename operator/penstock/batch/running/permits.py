"""Permits of work that all batches share, of which no tenant can take all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.core.fair_queue import FairQueue
from penstock_engine.http.fair_limit import FairLimit


class TenantPermits:
    """Permits to do something at a time. A tenant may hold half of those that the others leave.

    So there is one for a tenant without any, however long the others hold theirs. Those that wait take turns.
    """

    def __init__(self, num_permits: int) -> None:
        self._held = FairLimit(num_permits)
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()

    @property
    def num_held(self) -> int:
        """Permits that are held now."""
        return self._held.held

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
        # If the owner with the fewest permits may have no further one, none of the others may
        while (tenant := self._queue.next_owner()) is not None and self._held.take(tenant, 1):
            permit = self._queue.start(tenant)
            if permit.done():  # what waited for it was stopped
                self._held.give_back(tenant, 1)
                self._queue.finish(tenant)
                continue
            permit.set_result(None)

    def _release(self, tenant: str) -> None:
        self._held.give_back(tenant, 1)
        self._queue.finish(tenant)
        self._grant()
