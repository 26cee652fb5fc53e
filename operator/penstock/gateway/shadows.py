"""Copies of requests, to see what another revision or service would do with them.

A copy never meets the request that it is of: it has its own connections, there are only so many at
a time, it begins after the original was answered, and whatever comes of it is counted and dropped.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from penstock.adapters.clock import monotonic
from penstock.core.route import Shadow
from penstock.core.routing import Endpoint, NoEndpoint, pick
from penstock.gateway.metrics import Metrics
from penstock.gateway.openai import Call
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshot import Service, Snapshot
from penstock.gateway.upstream import IDLE_CONNECTION_S


@dataclass(frozen=True, slots=True)
class Copy:
    """path: with the query."""

    call: Call
    path: str
    headers: Mapping[str, str]


class Shadows:
    """Of one gateway. Made on its event loop."""

    def __init__(self, settings: GatewaySettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None

    @property
    def open(self) -> int:
        return len(self._tasks)

    def send(self, copy: Copy, shadow: Shadow, snapshot: Snapshot, namespace: str) -> None:
        """Begin a copy, if there is room and somebody to take it."""
        key = f"{namespace}/{shadow.service}"
        service = snapshot.get(key)
        endpoint = None if service is None else _endpoint(service, shadow.revision)
        if endpoint is None or service is None or self.open >= self._settings.max_shadows:
            self._count(key, shadow.revision or "", "dropped")
            return
        task = asyncio.get_running_loop().create_task(self._run(copy, service, endpoint))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all that are under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _run(self, copy: Copy, service: Service, endpoint: Endpoint) -> None:
        try:
            status = await self._exchange(copy, service, endpoint)
            self._count(service.key, endpoint.revision, "ok" if status < 400 else "error")
        except (aiohttp.ClientError, OSError, TimeoutError):
            self._count(service.key, endpoint.revision, "error")

    async def _exchange(self, copy: Copy, service: Service, endpoint: Endpoint) -> int:
        began_s = monotonic()
        async with self._connections().post(
            f"http://{endpoint.address}{copy.path}",
            data=copy.call.body_for(service.served_name),
            headers=copy.headers,
            allow_redirects=False,
        ) as response:
            has_begun = False
            while await response.content.readany():
                if not has_begun:
                    has_begun = True
                    seconds = self._metrics.shadow_first_byte_s
                    seconds.labels(service.key, endpoint.revision).observe(monotonic() - began_s)
            return response.status

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(
                total=self._settings.total_timeout_s, sock_connect=self._settings.connect_timeout_s
            )
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("Accept-Encoding", "User-Agent", "Content-Type"),
                timeout=timeout,
            )
        return self._session

    def _count(self, service: str, revision: str, outcome: str) -> None:
        self._metrics.shadows.labels(service, revision, outcome).inc()


def _endpoint(service: Service, revision: str | None) -> Endpoint | None:
    weights = service.weights
    if revision is not None:
        weights = {e.side: 1 for e in service.endpoints if e.revision == revision}
    draw = random.random()  # noqa: S311 - spreads load
    choice = pick(service.endpoints, weights, draw, load={})
    return None if isinstance(choice, NoEndpoint) else choice.endpoint
