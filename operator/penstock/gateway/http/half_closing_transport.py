"""The transport of a client's connection, which is closed so that the client gets the response first."""

import asyncio
from collections.abc import Callable
from typing import Any


class HalfClosingTransport:
    """A transport that closes only its sending side while the client still sends.

    A socket that is closed with unread bytes is reset, and then the client may lose the response. TLS cannot
    close one side: the client then sees the end of the response, but not of the connection.
    has_unread: whether there may be unread bytes. on_half_close: called when only that side is closed, or
    when a client with TLS has to answer the close.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        has_unread: Callable[[], bool],
        on_half_close: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._has_unread = has_unread
        self._on_half_close = on_half_close
        self._is_half_closed = False
        self._held: list[bytes] = []
        self.write: Callable[[bytes], None] = transport.write

    def hold(self) -> None:
        """Hold back what is written from now on, so that `flush` sends it at once: a write takes 20 us."""
        self.write = self._held.append

    def flush(self) -> None:
        """Send what was held back, and hold nothing any longer."""
        self.write = self._transport.write
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._is_half_closed or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        self.flush()
        if self._has_unread():
            self._is_half_closed = True
            if self._transport.can_write_eof():
                self._transport.write_eof()
            self._transport.resume_reading()
            self._on_half_close()
        else:
            self._transport.close()
            if not self._transport.can_write_eof():
                self._on_half_close()
