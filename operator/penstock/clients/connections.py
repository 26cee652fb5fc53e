"""The API server's connections, none of which outlives its client."""

import asyncio
import contextlib
import socket
from typing import Any
from weakref import WeakSet

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

# Of a moment each, for the event loop to see that they are shut.
MOST_ROUNDS = 100


class Connections(RESTClientObject):
    """Knows its sockets. aiohttp forgets a connection whose answer was not read to its end, which TLS
    keeps half open until the server says goodbye, up to 30 s: the event loop may be gone by then."""

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
        await super().close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(MOST_ROUNDS):
            if all(each.fileno() < 0 for each in self._sockets):
                break
            await asyncio.sleep(0.01)
