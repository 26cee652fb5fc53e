"""uvicorn's HTTP/1.1 protocol with limits on the time of clients, on heads and on connections."""

import asyncio
import fcntl
import sys
import termios
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from penstock_engine.http.connections_by_address import ConnectionsByAddress
from penstock_engine.http.header_limited_connection import HeaderLimitedConnection

# Bound on the bytes of a head: twice the gateway's --max-header-bytes (32 KiB), which adds some of its own.
MAX_HEAD_BYTES = 64 << 10
# Bound on the headers of a request, and on its trailers: twice the gateway's (128), for the same reason.
MAX_HEADER_LINES = 256
# Seconds that an idle connection stays open: longer than the usual time between two scrapes. The gateway
# closes its own after 4 s, so it never sends a request on one that is being closed.
IDLE_CONNECTION_S = 75
# Seconds for the first head of a connection, and for one that has begun, as the gateway's --head-timeout-s.
HEAD_TIMEOUT_S = 10.0
# Bytes that a client has to read within client_stall_timeout_s while that many wait for it.
MIN_READ_BYTES = 16 << 10


class BoundedProtocol(H11Protocol):
    """The server's side of a connection. Its client must send each head, and read each answer, in time.

    uvicorn has no such limits: clients that send or read nothing could use up the open files that health
    checks need too.

    client_stall_timeout_s: a client that reads less than MIN_READ_BYTES of a waiting answer in this time is
    disconnected. head_timeout_s: less in tests.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limit: ConnectionsByAddress,
        client_stall_timeout_s: float,
        head_timeout_s: float = HEAD_TIMEOUT_S,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = HeaderLimitedConnection(MAX_HEAD_BYTES, MAX_HEADER_LINES)
        self._limit = limit
        self._client_stall_timeout_s, self._head_timeout_s = client_stall_timeout_s, head_timeout_s
        self._address = ""
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether the application works on a request of this connection."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_sending(self) -> bool:
        """Whether a part of an answer waits for the client to read. The application may be done with it."""
        return self.flow.write_paused

    def abort(self) -> None:
        """Reset the connection."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # The gateway takes the /64 of an address. Pods of a node may share one, and a pod has one address.
        self._address = self.client[0] if self.client is not None else ""
        if not self._limit.add(self, self._address):
            self.abort()
            return
        # At this limit an unread answer pauses writing, which starts the timer. At zero a TLS transport would
        # stay paused: asyncio pauses it from the limit on, and other transports above it.
        transport.set_write_buffer_limits(high=1, low=0)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_read_timer()
        self._limit.remove(self, self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_head_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._set_head_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_read_timer()

    def _set_head_timer(self) -> None:
        if self.is_answering:
            self._stop_head_timer()
        elif self._head_timer is None and (
            self.conn.trailing_data[0] or self.conn.their_state is h11.SEND_BODY
        ):
            self._start_head_timer()

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._head_timeout_s, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _start_read_timer(self) -> None:
        num_unread = count_unread_bytes(self.transport)
        self._read_timer = self.loop.call_later(
            self._client_stall_timeout_s, self._check_reading, num_unread
        )

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _check_reading(self, num_unread: int) -> None:
        """Abort the connection if its client has read too little. num_unread: bytes, at the last check."""
        if num_unread - count_unread_bytes(self.transport) < MIN_READ_BYTES:
            self.abort()
        else:
            self._start_read_timer()


def count_unread_bytes(transport: asyncio.WriteTransport) -> int:
    """Count the bytes that the client's host has not taken yet, of which the kernel may hold 4 MiB.

    The kernel takes no more bytes before a third of them was taken.
    """
    try:
        connection = transport.get_extra_info("socket")
        in_kernel = fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))
    except OSError:  # a kernel that cannot tell
        in_kernel = b""
    return transport.get_write_buffer_size() + int.from_bytes(in_kernel, sys.byteorder)
