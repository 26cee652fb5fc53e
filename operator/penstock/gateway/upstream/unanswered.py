"""Attempts without a first byte: they are given up when their engine can no longer be expected to answer."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from penstock.gateway.snapshots.snapshot import Service, Snapshot


class EngineLost(Exception):
    """The engine's pod became unready before the first byte of its response."""


class UnansweredAttempts:
    """Attempts of all requests that wait for the first byte, by service "namespace/name" and pod."""

    def __init__(self) -> None:
        self._limits: dict[str, dict[str, set[asyncio.Timeout]]] = {}

    @asynccontextmanager
    async def watch(self, service: str, pod: str) -> AsyncIterator[None]:
        """Raise EngineLost in the block when the pod becomes unready and another engine is ready."""
        pods = self._limits.setdefault(service, {})
        limits = pods.setdefault(pod, set())
        limit = asyncio.timeout(None)
        limits.add(limit)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if limit.expired():
                raise EngineLost from error
            raise
        finally:
            self._forget(service, pod, limit)

    def update(self, snapshot: Snapshot) -> None:
        """Give up the attempts at pods that are unready in the snapshot."""
        now = asyncio.get_running_loop().time()
        for key, pods in self._limits.items():
            service = snapshot.get(key)
            for pod in () if service is None else _unready(service, pods):
                for limit in pods[pod]:
                    if not limit.expired():  # a snapshot before gave it up
                        limit.reschedule(now)

    def _forget(self, service: str, pod: str, limit: asyncio.Timeout) -> None:
        pods = self._limits[service]
        pods[pod].discard(limit)
        if not pods[pod]:
            del pods[pod]
        if not pods:
            del self._limits[service]


def _unready(service: Service, pods: Iterable[str]) -> list[str]:
    """Return the pods that are not ready; none if no ready engine has traffic.

    A pod that is being deleted completes its requests.
    """
    if not any(service.weights.get(e.side, 0) > 0 for e in service.endpoints):
        return []
    kept = service.terminating.union(e.pod for e in service.endpoints)
    return [pod for pod in pods if pod in service.sides and pod not in kept]
