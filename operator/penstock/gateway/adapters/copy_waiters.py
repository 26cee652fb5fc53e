"""Requests that wait for a copy of an adapter."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

# Shortest time between two wake-ups of a namespace's requests by changes, in seconds.
WAKE_INTERVAL_S = 0.05
# Rechecks in a second by the waiting requests of a namespace, because of changes, and as many because of
# RECHECK_S. Each selects an engine again. Of 10 engines with 1,280 copies each that takes 0.06 ms, of 100
# engines 0.5 ms: both together are at most some 10 % of the event loop.
MAX_RECHECKS_PER_S = 100
# Requests of a namespace that one wake-up wakes.
MAX_WAKES = round(MAX_RECHECKS_PER_S * WAKE_INTERVAL_S)
# Requests that are woken at once when one has found what they wait for too. As each of them does the same, a
# thousand are awake after nine turns of the event loop.
NUM_NEXT = 2
# Shortest time after which a request makes its choice again without a change, in seconds: an ejection may
# have ended.
RECHECK_S = 1.0


class CopyWaiters:
    """Wakes requests for adapters after changes of their service's copies: a bounded number in a second.

    No namespace pays for the changes and the waiting requests of another. A service is "namespace/name", an
    adapter its name in engines.
    """

    def __init__(self) -> None:
        # A namespace is dropped when no request and no timer holds it.
        self._namespaces: WeakValueDictionary[str, _Namespace] = WeakValueDictionary()

    async def wait(self, service: str, adapter: str, timeout_s: float, *, for_room: bool) -> None:
        """Wait until the request should choose again, at most timeout_s.

        for_room: whether another adapter may make room for this one.
        """
        namespace = self._namespaces.setdefault(_namespace_of(service), _Namespace())
        await namespace.wait(service, adapter, timeout_s, for_room=for_room)

    def note_change(self, service: str, adapter: str) -> None:
        """Wake the first request for an adapter soon: a load began, or a copy is gone.

        What it does, such as a load, is for all of them.
        """
        if namespace := self._namespaces.get(_namespace_of(service)):
            namespace.wake(service, adapter, 1)

    def note_room(self, service: str) -> None:
        """Wake the first request for room of each adapter soon."""
        if namespace := self._namespaces.get(_namespace_of(service)):
            namespace.wake_for_room(service)

    def wake_all(self, service: str, adapter: str) -> None:
        """Wake all requests for an adapter soon: a copy is in memory, or engines refuse to load it."""
        if namespace := self._namespaces.get(_namespace_of(service)):
            namespace.wake(service, adapter, None)

    def note_found(self, service: str, adapter: str) -> None:
        """Wake the next NUM_NEXT requests that `wake_all` has not woken yet.

        One request has found what they wait for. Requests that find nothing, such as those of a side without
        a copy, stay bounded.
        """
        if namespace := self._namespaces.get(_namespace_of(service)):
            namespace.wake_next(service, adapter)


@dataclass(slots=True, eq=False)
class _Queue:
    """Requests of a service for an adapter.

    waiters: in order, with whether each waits for room. num_due: how many are to be woken, from the first on.
    is_room_due: whether the first that waits for room is to be woken.
    """

    waiters: dict[asyncio.Future[None], bool] = field(default_factory=dict)
    num_due: int = 0
    is_room_due: bool = False

    def wake_next(self) -> bool:
        """Wake the next request that is due. Returns False if none is."""
        if not self.num_due and not self.is_room_due:
            return False
        for waiter, for_room in self.waiters.items():
            if (self.num_due or for_room) and not waiter.done():
                del self.waiters[waiter]
                waiter.set_result(None)
                self.num_due = max(0, self.num_due - 1)
                self.is_room_due = self.is_room_due and not for_room
                return True
        self.num_due, self.is_room_due = 0, False
        return False


class _Namespace:
    """The waiting requests of one namespace."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, _Queue]] = {}  # by service and adapter
        self._num_waiting = 0
        self._with_room: set[str] = set()  # services
        self._due: OrderedDict[_Queue, None] = OrderedDict()  # the next one first
        self._timer: asyncio.Handle | None = None

    async def wait(self, service: str, adapter: str, timeout_s: float, *, for_room: bool) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(service, {}).setdefault(adapter, _Queue())
        queue.waiters[waiter] = for_room
        self._num_waiting += 1
        recheck_s = max(RECHECK_S, self._num_waiting / MAX_RECHECKS_PER_S)
        try:
            async with asyncio.timeout(min(recheck_s, timeout_s)):
                await waiter
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._pass_on(service, adapter, for_room=for_room)
            raise
        finally:
            self._num_waiting -= 1
            queue.waiters.pop(waiter, None)
            self._drop_if_empty(service, adapter, queue)

    def wake(self, service: str, adapter: str, number: int | None) -> None:
        """Wake that many requests for an adapter soon; None: all, and the first before those of others."""
        if queue := self._queue(service, adapter):
            queue.num_due = max(queue.num_due, number or len(queue.waiters))
            self._due.setdefault(queue)
            if number is None:  # each room that is noted makes the queues of all adapters due
                self._due.move_to_end(queue, last=False)
            self._wake_soon()

    def wake_for_room(self, service: str) -> None:
        """Wake the first request for room of each adapter of a service soon."""
        if service in self._queues:
            self._with_room.add(service)
            self._wake_soon()

    def wake_next(self, service: str, adapter: str) -> None:
        """Wake the next NUM_NEXT requests of an adapter that are due, without waiting for their turn."""
        queue = self._queue(service, adapter)
        for _ in range(NUM_NEXT):
            if queue and queue.num_due:
                queue.wake_next()

    def _pass_on(self, service: str, adapter: str, *, for_room: bool) -> None:
        """Wake the next request instead of one that was woken and has left."""
        if queue := self._queue(service, adapter):
            queue.is_room_due = queue.is_room_due or for_room
            self.wake(service, adapter, queue.num_due + 1)

    def _queue(self, service: str, adapter: str) -> _Queue | None:
        queues = self._queues.get(service)
        return queues.get(adapter) if queues else None

    def _wake_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._wake_due)

    def _wake_due(self) -> None:
        """Wake a bounded number of requests, of each adapter in turn, and the others after an interval."""
        for service in self._with_room:
            for queue in self._queues.get(service, {}).values():
                queue.is_room_due = True
                self._due.setdefault(queue)
        self._with_room.clear()
        num_woken = 0
        while self._due and num_woken < MAX_WAKES:
            queue, _ = self._due.popitem(last=False)
            if queue.wake_next():
                num_woken += 1
                self._due[queue] = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WAKE_INTERVAL_S, self._wake_due) if num_woken else None

    def _drop_if_empty(self, service: str, adapter: str, queue: _Queue) -> None:
        if queue.waiters or self._queue(service, adapter) is not queue:
            return
        del self._queues[service][adapter]
        if not self._queues[service]:
            del self._queues[service]


def _namespace_of(service: str) -> str:
    return service.partition("/")[0]
