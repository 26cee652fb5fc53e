"""A bounded share of the event loop for the work that each namespace causes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from penstock.clients.machine.clock import thread_cpu_time


@dataclass(slots=True)
class _Share:
    """The turns of a namespace. next_s: when its next turn may begin, on the loop's clock."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    next_s: float = 0.0


class LoopShare:
    """Turns in which the work of a namespace takes at most a fraction of the event loop's time.

    After t seconds of work the namespace's next turn begins t / fraction later. Other namespaces do not wait.
    turn_s: seconds of work that are counted for each turn besides its own.
    cpu_time: CPU seconds of this thread.
    """

    def __init__(
        self, fraction: float, turn_s: float, cpu_time: Callable[[], float] = thread_cpu_time
    ) -> None:
        self._fraction = fraction
        self._turn_s = turn_s
        self._cpu_time = cpu_time
        self._shares: dict[str, _Share] = {}

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Wait for a turn of the namespace, first come, first served, and count the work of the block."""
        share, loop = self._share(namespace), asyncio.get_running_loop()
        async with share.lock:
            await asyncio.sleep(max(0.0, share.next_s - loop.time()))
            self._count(share, self._turn_s)
            with self.counted(namespace):
                yield

    @contextmanager
    def counted(self, namespace: str) -> Iterator[None]:
        """Count the work of the block, which waits for nothing, without waiting for a turn."""
        began_s = self._cpu_time()
        try:
            yield
        finally:
            self._count(self._share(namespace), self._cpu_time() - began_s)

    def _count(self, share: _Share, took_s: float) -> None:
        now_s = asyncio.get_running_loop().time()
        share.next_s = max(share.next_s, now_s) + took_s / self._fraction

    def _share(self, namespace: str) -> _Share:
        if found := self._shares.get(namespace):
            return found
        now_s = asyncio.get_running_loop().time()
        self._shares = {
            name: each
            for name, each in self._shares.items()
            if each.lock.locked() or each.next_s > now_s
        }
        return self._shares.setdefault(namespace, _Share())
