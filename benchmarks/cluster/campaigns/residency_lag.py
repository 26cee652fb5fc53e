"""Delay with which the statuses of adapters follow the copies that engines list."""

import asyncio

from tests.support.cluster.adapted_service import AdaptedService

from penstock.clients.machine.clock import monotonic

INTERVAL_S = 0.1


class ResidencyLag:
    """Compares the engines' lists with the statuses ten times a second, between `start` and `stop`.

    A copy that both list differently counts from the first comparison that shows it to the first one that
    shows it no more.
    """

    def __init__(self, adapted: AdaptedService) -> None:
        self._adapted = adapted
        self._since_s: dict[tuple[str, str], float] = {}
        self._lags_s: list[float] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def take(self) -> list[float]:
        """Return the delays in seconds since the last call, with those of copies that still differ."""
        now_s = monotonic()
        found = [*self._lags_s, *(now_s - since_s for since_s in self._since_s.values())]
        self._lags_s = []
        return sorted(found)

    async def _run(self) -> None:
        while True:
            try:
                on_engines = await self._adapted.on_engines()
                in_statuses = await self._adapted.in_statuses()
            except AssertionError:
                continue  # an engine did not answer: it is about to be no endpoint any more
            now_s = monotonic()
            differing = on_engines ^ in_statuses
            for copy in list(self._since_s):
                if copy not in differing:
                    self._lags_s.append(now_s - self._since_s.pop(copy))
            for copy in differing:
                self._since_s.setdefault(copy, now_s)
            await asyncio.sleep(INTERVAL_S)
