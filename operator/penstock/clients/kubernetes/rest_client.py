"""REST client for the API server that observes its requests, and closes all sockets with itself."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject, RESTResponse

from penstock.clients.machine.clock import monotonic

# Bound on the waits of 10 ms for the event loop to close the sockets.
MAX_WAITS = 100
WRITE_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

# Called with each request's verb, HTTP status (None without a response) and seconds until the response.
RequestObserver = Callable[[str, int | None, float], None]


def api_verb(method: str, url: str) -> str:
    """Return the verb of a request to the API server, as in RBAC rules."""
    if method != "GET":
        return WRITE_VERBS[method]
    parts = urlsplit(url)
    if "watch=true" in parts.query.split("&"):
        return "watch"
    # /api/VERSION/… or /apis/GROUP/VERSION/…, with namespaces/NAMESPACE before namespaced kinds.
    _, root, *rest = parts.path.split("/")
    rest = rest[1 if root == "api" else 2 :]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return "get" if len(rest) > 1 else "list"


class SocketTracker:
    """Creates the sockets of an aiohttp connector, and shuts down those that are still open in `close`.

    aiohttp forgets a connection whose response was not read to its end. TLS keeps it half open until the
    server closes it, for up to 30 s, and the event loop may have ended by then.
    """

    def __init__(self) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def create(self, address: Any) -> socket.socket:
        """A socket for an entry of `getaddrinfo`: the connector's `socket_factory`."""
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        self._sockets.add(made)
        return made

    async def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(MAX_WAITS):
            if all(each.fileno() < 0 for each in self._sockets):
                break
            await asyncio.sleep(0.01)


class TrackingRestClient(RESTClientObject):
    """REST client that closes its sockets in `close`, also those of unfinished responses.

    observe: called after each request.
    """

    def __init__(self, configuration: Any, observe: RequestObserver | None = None) -> None:
        super().__init__(configuration)
        self._sockets = SocketTracker()
        self._observe = observe

    async def request(self, method: str, url: str, *args: Any, **options: Any) -> RESTResponse:
        """Send a request. The arguments are the base class's."""
        started_s, status = monotonic(), None
        try:
            response: RESTResponse = await super().request(  # type: ignore[no-untyped-call]
                method, url, *args, **options
            )
            status = response.status
            return response
        finally:
            if self._observe is not None:
                self._observe(api_verb(method, url), status, monotonic() - started_s)

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, socket_factory=self._sockets.create
        )

    async def close(self) -> None:
        try:
            await super().close()
        finally:  # also when the caller is cancelled here: its event loop may end soon
            await self._sockets.close()
