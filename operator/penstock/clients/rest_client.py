"""REST client for the API server that closes all of its sockets with itself."""

import asyncio
import contextlib
import socket
from typing import Any
from weakref import WeakSet

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

# Bound on the waits of 10 ms for the event loop to close the sockets.
MAX_WAITS = 100


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
    """REST client that closes its sockets in `close`, also those of unfinished responses."""

    def __init__(self, configuration: Any) -> None:
        super().__init__(configuration)
        self._sockets = SocketTracker()

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, socket_factory=self._sockets.create
        )

    async def close(self) -> None:
        try:
            await super().close()
        finally:  # also when the caller is cancelled here: its event loop may end soon
            await self._sockets.close()
