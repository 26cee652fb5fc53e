"""h11's parser of client requests, with more checks."""

import re
from typing import Any

import h11

from penstock_engine.http.header_limited_connection import HeaderLimitedConnection

# Bound on the headers of a request, and on its trailers, as aiohttp's on those of an answer. Clients behind
# several proxies send about 40.
MAX_HEADER_LINES = 128
# Bound on the chunks of a body: 1000, and one more for every 256 bytes. h11 takes 15 us for each chunk,
# so a read of 256 KiB in chunks of one byte would stop the event loop for half a second.
FREE_CHUNKS = 1000
MIN_CHUNK_BYTES = 256
# Bytes of a head in which its path is looked for, if it cannot be parsed.
MAX_PATH_BYTES = 200
# h11's message for a head, trailers or the line of a chunk that are too long.
TOO_LONG = "Receive buffer too long"
# The bytes that h11's message repeats. They may be a key: behind the name of a header they are left out, and
# without one all of them.
REPEATED_BYTES = re.compile(r": bytearray\(b['\"](?:(?P<header>[A-Za-z0-9-]{1,64}):)?.*", re.DOTALL)
# Start of a target that names the server too, which clients of proxies send (RFC 9112, 3.2.2).
SERVER_OF_TARGET = re.compile(rb"https?://[^/?]*", re.IGNORECASE)


class StrictConnection(HeaderLimitedConnection):
    """h11's server parser, with more checks: against request smuggling, tiny chunks and many headers.

    A body whose length a proxy before the gateway could read differently is refused (RFC 9112, 6.1).
    error: the last error in the bytes of the client, none of which it repeats.
    """

    def __init__(self, max_head_bytes: int) -> None:
        super().__init__(max_head_bytes, MAX_HEADER_LINES)
        self._num_chunks = self._body_bytes = 0
        self.error: h11.RemoteProtocolError | None = None
        self._is_head = False
        self._max_head_bytes = max_head_bytes
        self._head_start = b""  # the first bytes of the last head

    @property
    def path(self) -> str:
        """The path of the current request, also of one that cannot be parsed; empty if unknown."""
        target = self._head_start.partition(b"\r")[0].split(b" ")[1:2]
        return b"".join(target).partition(b"?")[0].decode("latin-1")

    @property
    def may_have_body(self) -> bool:
        """Whether the response to the current request, if there is one, may have a body."""
        return not (self._is_head and self.our_state is h11.SEND_RESPONSE)

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self.their_state is h11.IDLE and data and not self._receive_buffer:
            self._head_start = data[:MAX_PATH_BYTES]
        super().receive_data(data)

    def next_event(self) -> Any:
        """Parse the next event. Raises h11.RemoteProtocolError, which it keeps in `error`."""
        try:
            return self._checked(super().next_event())
        except h11.RemoteProtocolError as error:
            message = str(error)
            if message == TOO_LONG:
                message = f"path and headers have more than {self._max_head_bytes} bytes"
            self.error = h11.RemoteProtocolError(without_bytes(message), error.error_status_hint)
            raise

    def _checked(self, event: Any) -> Any:
        if type(event) is h11.Data:
            self._num_chunks += 1
            self._body_bytes += len(event.data)
            if self._num_chunks > FREE_CHUNKS + self._body_bytes // MIN_CHUNK_BYTES:
                raise h11.RemoteProtocolError("the chunks of the body are too small")
        elif type(event) is h11.Request:
            self._num_chunks = self._body_bytes = 0
            self._is_head = event.method == b"HEAD"
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (
                b"content-length" in names or event.http_version == b"1.0"
            ):
                raise h11.RemoteProtocolError("the length of the body is ambiguous")
            return _without_server(event)
        return event


def without_bytes(message: str) -> str:
    """Return an error's message without the bytes of the client, but for the name of a header."""
    return REPEATED_BYTES.sub(
        lambda found: f": {found['header']}" if found["header"] else "", message
    )


def _without_server(request: h11.Request) -> h11.Request:
    """Return the request with its target as a path, as most clients send it."""
    server = SERVER_OF_TARGET.match(request.target)
    if server is None:
        return request
    path = request.target[server.end() :]
    return h11.Request(
        method=request.method,
        target=path if path.startswith(b"/") else b"/" + path,
        headers=list(request.headers),
        http_version=request.http_version,
    )
