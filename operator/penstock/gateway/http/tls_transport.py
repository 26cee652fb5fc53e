"""The transport of a TLS connection, with the flow control of a plain one."""

import asyncio
from typing import Any


class TlsTransport:
    """asyncio's transport of a TLS connection, which also counts bytes that are encrypted but not sent.

    transport: takes plain bytes. raw: the one below, which sends encrypted ones.
    """

    def __init__(self, transport: asyncio.Transport, raw: asyncio.Transport) -> None:
        self._transport, self._raw = transport, raw
        self.write = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Bound the bytes that may be unsent before the protocol is paused.

        The limit holds for encrypted bytes. While there are as many of them, the first plain byte pauses.
        """
        self._raw.set_write_buffer_limits(high, low)
        # With high=0 asyncio would pause the protocol even while no byte is unsent.
        self._transport.set_write_buffer_limits(high=1, low=0)

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes, plain and encrypted."""
        return self._transport.get_write_buffer_size() + self._raw.get_write_buffer_size()
