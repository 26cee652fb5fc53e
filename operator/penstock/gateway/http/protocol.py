"""The gateway's HTTP/1.1 server protocol: uvicorn's on h11, with limits for slow and hostile clients.

Why h11 and not httptools: it reads the body of a request with an Upgrade header (httptools takes the
bytes behind the head for another protocol, and uvicorn takes them for the next request), keeps
trailers out of the headers, and bounds the size of both.
"""

import asyncio
import logging
import socket
from http import HTTPStatus
from typing import Any, cast

import h11
from starlette.types import Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from penstock.clients.machine.logs import fields
from penstock.core.routing.apis import error_form
from penstock.gateway.apis.errors import error_body
from penstock.gateway.http.half_closing_transport import HalfClosingTransport
from penstock.gateway.http.response_pieces import COUNTS_FOR_SERVICE, send_in_pieces
from penstock.gateway.http.strict_connection import StrictConnection
from penstock.gateway.limits.connection_limit import ConnectionLimit, Replaceable
from penstock.gateway.settings import GatewaySettings

logger = logging.getLogger(__name__)

# Bytes of one read that are parsed at once: h11 checks its limit only between two calls.
PARSED_PIECE_BYTES = 16 << 10
# Bound on the unread response of one client in the kernel, which doubles it: 4096 such clients then hold
# 512 MiB, and without it up to 4 MiB each. A client 100 ms away still reads 1 MB/s.
SEND_BUFFER_BYTES = 64 << 10
# Time without a byte of the client after its response before the connection is reset. A client that goes on
# to send reads its response only then, so it may send for `request_timeout_s`.
LINGER_S = 2.0


class GatewayProtocol(H11Protocol):
    """The server side of one client connection, with limits on its number, size and time.

    limit: of the connections of its server.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: GatewaySettings,
        limit: ConnectionLimit,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._app, self.app = self.app, self._run_app
        self._settings, self._limit = settings, limit
        self.conn: StrictConnection = StrictConnection(self._settings.max_header_bytes)
        # When the incomplete head started; for a new connection, when it was opened.
        self._head_started_s: float | None = self.loop.time()
        self._is_dropping = False  # whether pipelined bytes are dropped, as there were too many
        self._is_refused = self._is_half_closed = False
        self._closing_since_s: float | None = None
        self._last_dropped_s = 0.0
        self._has_dropped = False  # whether the client has sent since the last check
        self._unread_since_s: float | None = None  # since when bytes are unsent
        self._counted: Scope | None = None  # the request whose response counts for a service

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._writes = HalfClosingTransport(transport, self._has_unread, self._note_half_closed)
        super().connection_made(cast(asyncio.Transport, self._writes))
        _bound_send_buffer(transport)
        transport.set_write_buffer_limits(high=0)  # `flow` is paused while any byte is unsent
        if self._limit.add(self):
            self._limit.mark(self, Replaceable.IDLE)
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.remove(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Reset the connection."""
        self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_since_s = self.loop.time()
        self._note_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_since_s = None
        self._note_unread()
        if self._is_half_closed:
            self._limit.mark(self, Replaceable.LINGERING)

    def _note_unread(self) -> None:
        applies = self._unread_since_s is not None and self._counted is None
        self._limit.mark(self, Replaceable.UNREAD, applies=applies)

    async def _run_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_when_read(message: Message) -> None:
            if message.get(COUNTS_FOR_SERVICE, False):
                self._counted = scope
                self._note_unread()
            await send_in_pieces(message, send, self._writes, self.flow.drain)

        try:
            await self._app(scope, receive, send_when_read)
        finally:
            self._writes.flush()  # the head, if the body did not follow
            if self._counted is scope:  # not a pipelined request, which may have started
                self._counted = None
                self._note_unread()

    def _note_half_closed(self) -> None:
        self._is_half_closed = True
        self._limit.mark(self, Replaceable.IDLE, applies=False)
        if not self.flow.write_paused:
            self._limit.mark(self, Replaceable.LINGERING)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PARSED_PIECE_BYTES):
            if self.transport.is_closing():
                self._has_dropped = True
                return
            piece = data[start : start + PARSED_PIECE_BYTES]
            if self._is_answering and self.conn.their_state is not h11.SEND_BODY:
                self._buffer_pipelined(piece)
            else:
                super().data_received(piece)
        self._note_progress()

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.SEND_BODY:  # the response came before the body was complete
            self.transport.close()
        super().on_response_complete()
        self._note_progress()

    def send_400_response(self, msg: str) -> None:
        error = self.conn.error
        if error is not None:
            self._refuse(HTTPStatus(error.error_status_hint), f"invalid HTTP request: {error}")
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def check(self, now_s: float) -> None:
        """Close the connection if its client does not send or read in time. now_s: loop time."""
        settings = self._settings
        started_s = self._head_started_s
        if started_s is not None and now_s - started_s > settings.head_timeout_s:
            self._head_started_s = None
            if self.conn.trailing_data[0]:
                message = f"the head was not complete after {settings.head_timeout_s:g} s"
                self._refuse(HTTPStatus.REQUEST_TIMEOUT, message)
            else:  # the client would take a response now for that of its next request
                self.transport.close()
        if self.transport.is_closing():
            self._check_linger(now_s)
        unread_since_s = self._unread_since_s
        if unread_since_s is not None and now_s - unread_since_s > settings.client_stall_timeout_s:
            self.transport.abort()

    def _check_linger(self, now_s: float) -> None:
        """Reset a connection whose client sends nothing more after its response, or for too long."""
        if self._closing_since_s is None:
            self._closing_since_s = self._last_dropped_s = now_s
        if self._has_dropped:
            self._last_dropped_s, self._has_dropped = now_s, False
        closing_s = now_s - self._closing_since_s
        is_over = (
            now_s - self._last_dropped_s > LINGER_S or closing_s > self._settings.request_timeout_s
        )
        if self.transport.get_write_buffer_size():
            is_over = closing_s > self._settings.client_stall_timeout_s
        if is_over:
            self.transport.abort()

    def _has_unread(self) -> bool:
        """Whether the client may still send bytes that are not read."""
        is_unread = self._is_dropping or self.conn.their_state is h11.SEND_BODY
        return self._is_refused or is_unread

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _buffer_pipelined(self, data: bytes) -> None:
        """Buffer the start of a pipelined request until the current one is answered.

        Meanwhile the connection is read, so that a disconnect is noticed.
        """
        # The buffer may still hold requests that arrived together with earlier ones.
        num_bytes = len(self.conn.trailing_data[0]) + len(data)
        if self._is_dropping or num_bytes > self._settings.max_header_bytes:
            self._is_dropping = True
            self.cycle.keep_alive = False  # too large: the client must use a new connection
        else:
            self.conn.receive_data(data)

    def _note_progress(self) -> None:
        if self._is_answering:
            self._head_started_s = None
            self._limit.mark(self, Replaceable.IDLE, applies=False)
        elif not self.transport.is_closing():
            self._limit.mark(self, Replaceable.IDLE)
            if self._head_started_s is None and self.conn.trailing_data[0]:
                self._head_started_s = self.loop.time()

    def _should_upgrade(self) -> bool:
        """Return False: a request with an Upgrade header is answered as plain HTTP/1.1."""
        return False

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Send an error, unless a response has begun, and close the connection."""
        self._is_refused = True
        logger.warning("connection refused", extra=fields(status=int(status), reason=message))
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = error_body(status, message, form=error_form(self.conn.path))
            sent = body if self.conn.may_have_body else b""
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            ]
            reason = status.phrase.encode()
            response = h11.Response(status_code=status, headers=headers, reason=reason)
            for event in (response, h11.Data(data=sent), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


def _bound_send_buffer(transport: asyncio.BaseTransport) -> None:
    transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES
    )
