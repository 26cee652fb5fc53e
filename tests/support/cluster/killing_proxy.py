"""Proxy between an operator and the API server that kills the operator at chosen writes or at every write."""

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from tests.support.http_server import served

from penstock.clients.kubernetes.rest_client import SocketTracker
from penstock.local.cluster import Cluster

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
HOP_BY_HOP = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "authorization"}
)


@dataclass(frozen=True, slots=True)
class Moment:
    """Moment of a kill: the `nth` write of a verb and resource in a life cycle."""

    write: str
    nth: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.write} #{self.nth}"


class KillingProxy:
    """Forwards requests to the API server as administrator and counts a namespace's writes, except Leases.

    moments: when to kill. None: at every write of each kind, alternating between before and after it, so
    that every write succeeds at the second attempt.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, moments: Collection[Moment] | None
    ) -> None:
        self._cluster = cluster
        self._scope = f"/namespaces/{namespace}/"
        self._counts: Counter[str] = Counter()
        self._token = (cluster.folder / "tokens.csv").read_text().split(",")[0]
        self._tls = ssl.create_default_context(cafile=str(cluster.folder / "pki" / "ca.crt"))
        self._session: aiohttp.ClientSession
        self._forwarding: set[asyncio.Task[Any]] = set()
        self.operator: asyncio.subprocess.Process | None = None
        self.writes: list[str] = []
        self.to_come = set(moments or ())
        self._always = moments is None
        self.kills = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        # Watches of killed operators are not read to their end.
        sockets = SocketTracker()
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls, socket_factory=sockets.create)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(sockets.close)
            made = aiohttp.ClientSession(connector=connector)
            self._session = await stack.enter_async_context(made)
            stack.push_async_callback(self._cancel_forwarding)
            yield f"http://{await stack.enter_async_context(served(app))}"

    async def _cancel_forwarding(self) -> None:
        """End the watches of killed operators: the server no longer knows their connections."""
        tasks = tuple(self._forwarding)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._forwarding.add(task)
        task.add_done_callback(self._forwarding.discard)
        return await self._forward(request)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        moment = self._moment_of(request)
        if moment is not None and not moment.after:
            self._kill(moment)
            raise web.HTTPServiceUnavailable
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        headers["Authorization"] = f"Bearer {self._token}"
        async with self._session.request(
            request.method, self._cluster.server + request.path_qs, headers=headers,
            data=await request.read() or None, skip_auto_headers=("Content-Type",),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as upstream:  # fmt: skip
            if moment is not None:
                self._kill(moment)
                raise web.HTTPServiceUnavailable
            answer = web.StreamResponse(status=upstream.status)
            answer.content_type = upstream.content_type
            with contextlib.suppress(
                ConnectionError, aiohttp.ClientError
            ):  # the operator has just been killed
                await answer.prepare(request)
                async for chunk in upstream.content.iter_any():
                    await answer.write(chunk)
            return answer

    def _moment_of(self, request: web.Request) -> Moment | None:
        """Count a write. Returns its moment if the operator is to be killed at it."""
        _, _, path = request.path.partition(self._scope)
        if request.method not in VERBS or not path or path.startswith("leases"):
            return None
        plural, *rest = path.split("/")
        write = f"{VERBS[request.method]} {'/'.join([plural, *rest[1:]])}"
        self.writes.append(write)
        self._counts[write] += 1
        nth = self._counts[write]
        if self._always:
            return Moment(write, nth, after=nth % 2 == 0)
        here = {Moment(write, nth, after) for after in (False, True)}
        return next(iter(here & self.to_come), None)

    def _kill(self, moment: Moment) -> None:
        assert self.operator is not None
        if self.operator.returncode is None:
            self.operator.kill()
            self.to_come.discard(moment)
            self.kills += 1
