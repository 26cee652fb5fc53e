"""Connections to pods: a pool that never takes an unrequested response for that of the next request."""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp
from aiohttp import AddrInfoType
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import StreamReader

logger = logging.getLogger(__name__)

# Engines close an idle connection after 5 s (uvicorn's default): the client must do it first.
IDLE_CONNECTION_S = 4.0
# Bound on the informational responses (1xx) before a response. Servers send one, or a few while they work.
MAX_INFORMATIONAL = 10
# Size of the pieces in which bytes are parsed that may be heads of responses. 64 KiB of the shortest ones
# would take 50 ms.
PIECE_BYTES = 1 << 10


class PodConnection(ResponseHandler):
    """A connection that is closed when the pod sends what no request asked for.

    Without an open request that is any byte: aiohttp would parse it as part of the next response. Before a
    response it is more than MAX_INFORMATIONAL informational ones: aiohttp would skip any number of them
    without a turn for other tasks.
    """

    is_idle = False
    _num_informational = 0

    def set_response_params(self, **params: Any) -> None:
        """Prepare for the response to a request, which is sent next."""
        self.is_idle = False
        self._num_informational = 0
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if not self.is_idle or not data:  # aiohttp passes nothing when it resumes to read
            self._parse(data)
        elif self.transport is not None:
            address = self.transport.get_extra_info("peername")
            logger.warning("the pod at %s sent a response that no request asked for", address)
            self.transport.abort()

    def _parse(self, data: bytes) -> None:
        start = 0
        while not self._is_within_body and len(data) - start > PIECE_BYTES:
            super().data_received(data[start : start + PIECE_BYTES])
            start += PIECE_BYTES
            if not self.is_connected():
                return
        super().data_received(data[start:] if start else data)

    @property
    def _is_within_body(self) -> bool:
        return self._payload is not None and not self._payload.is_eof()

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Queue the head of a response, unless too many informational ones came before it."""
        if 100 <= data[0].code < 200:
            self._num_informational += 1
        if self._num_informational <= MAX_INFORMATIONAL:
            super().feed_data(data, size)
        elif self.transport is not None and not self.transport.is_closing():
            self.transport.abort()
            message = f"more than {MAX_INFORMATIONAL} informational responses"
            self.set_exception(HttpProcessingError(message=message))


class PodConnector(aiohttp.TCPConnector):
    """A pool of connections to pods, without a limit on their number.

    receive_buffer_bytes: bound on what the kernel holds of an unread response, which it doubles; None: the
    kernel's own, of several MiB. check_address: called with each address before it is connected to; raises
    OSError to refuse it.
    """

    def __init__(
        self,
        receive_buffer_bytes: int | None = None,
        *,
        check_address: Callable[[AddrInfoType], None] = lambda _: None,
    ) -> None:
        super().__init__(
            limit=0,
            keepalive_timeout=IDLE_CONNECTION_S,
            socket_factory=partial(_new_socket, receive_buffer_bytes, check_address),
        )
        self._factory = partial(_new_connection, loop=self._loop)

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        super()._release(key, protocol, should_close=should_close)
        assert isinstance(protocol, PodConnection)
        protocol.is_idle = True


def _new_connection(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return PodConnection(loop)


def _new_socket(
    receive_buffer_bytes: int | None,
    check_address: Callable[[AddrInfoType], None],
    address: AddrInfoType,
) -> socket.socket:
    check_address(address)
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    if receive_buffer_bytes is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    return made
