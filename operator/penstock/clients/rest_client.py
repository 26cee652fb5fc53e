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


class TrackingRestClient(RESTClientObject):
    """REST client that tracks its sockets and shuts them down in `close`.

    aiohttp forgets a connection whose response was not read to its end. TLS keeps it half open until the
    server closes it, for up to 30 s, and the event loop may have ended by then.
    """

    def __init__(self, configuration: Any) -> None:
        super().__init__(configuration)
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, socket_factory=self._socket
        )

    def _socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        self._sockets.add(made)
        return made

    async def close(self) -> None:
        try:
            await super().close()
        finally:  # also when the caller is cancelled here: its event loop may end soon
            await self._close_sockets()

    async def _close_sockets(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(MAX_WAITS):
            if all(each.fileno() < 0 for each in self._sockets):
                break
            await asyncio.sleep(0.01)
