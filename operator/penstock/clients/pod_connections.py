"""Connections to pods: a pool that never takes an unrequested response for that of the next request."""

import asyncio
import logging
import socket
from functools import partial
from typing import Any

import aiohttp
from aiohttp import AddrInfoType
from aiohttp.client_proto import ResponseHandler

logger = logging.getLogger(__name__)

# Engines close an idle connection after 5 s (uvicorn's default): the client must do it first.
IDLE_CONNECTION_S = 4.0


class PodConnection(ResponseHandler):
    """A connection that is closed when the pod sends anything on it while no request is open.

    aiohttp itself would keep those bytes, and parse them as the response to the next request.
    """

    is_idle = False

    def set_response_params(self, **params: Any) -> None:
        """Prepare for the response to a request, which is sent next."""
        self.is_idle = False
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if not self.is_idle or not data:  # aiohttp passes nothing when it resumes to read
            super().data_received(data)
        elif self.transport is not None:
            address = self.transport.get_extra_info("peername")
            logger.warning("the pod at %s sent a response that no request asked for", address)
            self.transport.abort()


class PodConnector(aiohttp.TCPConnector):
    """A pool of connections to pods, without a limit on their number.

    receive_buffer_bytes: bound on what the kernel holds of an unread response, which it doubles; None: the
    kernel's own, of several MiB.
    """

    def __init__(self, receive_buffer_bytes: int | None = None) -> None:
        super().__init__(
            limit=0,
            keepalive_timeout=IDLE_CONNECTION_S,
            socket_factory=partial(_new_socket, receive_buffer_bytes),
        )
        self._factory = partial(_new_connection, loop=self._loop)

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        super()._release(key, protocol, should_close=should_close)
        assert isinstance(protocol, PodConnection)
        protocol.is_idle = True


def _new_connection(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return PodConnection(loop)


def _new_socket(receive_buffer_bytes: int | None, address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    if receive_buffer_bytes is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    return made
