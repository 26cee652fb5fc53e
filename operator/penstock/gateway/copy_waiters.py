"""Requests that wait for a copy of an adapter."""

import asyncio
from collections import Counter

# Shortest time between two wake-ups of the requests that are first in their queues, in seconds: each of them
# selects an engine again, which takes some 0.5 ms.
WAKE_INTERVAL_S = 0.05
# Rechecks in a second by all waiting requests of a namespace: some 5 % of the event loop.
MAX_RECHECKS_PER_S = 100
# Shortest time after which a request makes its choice again without a change, in seconds: an ejection may
# have ended.
RECHECK_S = 1.0


class CopyWaiters:
    """Wakes requests for adapters: all when a copy can serve them, else the first of each service.

    What the first one does, such as a load, is for all of them. An engine whose lists change all the time
    thus costs one choice at a time.
    """

    def __init__(self) -> None:
        # By adapter and service, in order: {waiter: whether it waits for room}. The adapter is its name in
        # engines, which adapters of two namespaces may share.
        self._queues: dict[str, dict[str, dict[asyncio.Future[None], bool]]] = {}
        self._num_waiting: Counter[str] = Counter()  # by namespace
        self._changed: set[str] = set()
        self._has_room = False
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, adapter: str, service: str, timeout_s: float, *, for_room: bool) -> None:
        """Wait until the request should choose again, at most timeout_s.

        service: "namespace/name". for_room: whether another adapter may make room for this one.
        """
        namespace = service.partition("/")[0]
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(adapter, {}).setdefault(service, {})
        queue[waiter] = for_room
        self._num_waiting[namespace] += 1
        recheck_s = max(RECHECK_S, self._num_waiting[namespace] / MAX_RECHECKS_PER_S)
        try:
            async with asyncio.timeout(min(recheck_s, timeout_s)):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._leave(adapter, service, waiter)

    def wake_all(self, adapter: str) -> None:
        """Wake all requests for an adapter: a copy is in memory, or engines refuse to load it."""
        for queue in self._queues.get(adapter, {}).values():
            for waiter in queue:
                _wake(waiter)

    def note_change(self, adapter: str) -> None:
        """Wake the first request of each service for an adapter soon: a load began, or a copy is gone."""
        if adapter in self._queues:
            self._changed.add(adapter)
            self._wake_soon()

    def note_room(self) -> None:
        """Wake the first request for room of each adapter and service soon."""
        if self._queues:
            self._has_room = True
            self._wake_soon()

    def _wake_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAKE_INTERVAL_S, self._wake_firsts)

    def _wake_firsts(self) -> None:
        for adapter, queues in self._queues.items():
            is_changed = adapter in self._changed
            for queue in queues.values():
                firsts = (w for w, for_room in queue.items() if is_changed or for_room)
                if (is_changed or self._has_room) and (first := next(firsts, None)) is not None:
                    _wake(first)
        self._timer, self._has_room = None, False
        self._changed.clear()

    def _leave(self, adapter: str, service: str, waiter: asyncio.Future[None]) -> None:
        namespace = service.partition("/")[0]
        self._num_waiting[namespace] -= 1
        if not self._num_waiting[namespace]:
            del self._num_waiting[namespace]
        queues = self._queues[adapter]
        del queues[service][waiter]
        if not queues[service]:
            del queues[service]
        if not queues:
            del self._queues[adapter]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
