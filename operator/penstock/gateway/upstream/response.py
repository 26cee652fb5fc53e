"""An engine's response whose first bytes have arrived, and the reading of the rest."""

import asyncio
import contextlib
from dataclasses import dataclass

import aiohttp

from penstock.gateway.apis.response_usage import error_status
from penstock.gateway.apis.sse import SseBuffer
from penstock.gateway.http.headers import RawHeaders
from penstock.gateway.limits.shared_limit import Allocation

# Time limit for an engine to end its response after its last event; then the connection is closed.
END_AFTER_DONE_S = 1.0


class ResponseTruncated(Exception):
    """The engine's response was cut off before its end."""


@dataclass(slots=True)
class UpstreamResponse:
    """An engine's response whose first bytes have arrived.

    first_chunk: those bytes; the whole body if `source` is None. source: gives the rest. sse: set when
    the response is a stream of events. allocation: of what is held; None: nothing is counted.
    """

    status: int
    headers: RawHeaders
    first_chunk: bytes
    source: aiohttp.ClientResponse | None
    sse: SseBuffer | None
    allocation: Allocation | None = None

    @property
    def is_error(self) -> bool:
        """Whether the status, or an error event in the first chunk, is an error."""
        is_event = self.sse is not None and error_status(self.first_chunk) is not None
        return self.status >= 400 or is_event

    async def next_chunk(self) -> bytes:
        """Return the next bytes to pass on; empty at the end. Raises ResponseTruncated."""
        if self.source is None:
            return b""
        if self.sse is not None and self.sse.is_done:
            await _read_to_end(self.source)
            return b""
        while True:
            try:
                chunk = await self.source.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                raise ResponseTruncated from error
            if self.sse is None:
                return chunk
            if not chunk:
                rest = self.sse.finish()
                if not rest:
                    raise ResponseTruncated
                return rest
            if events := self.sse.feed(chunk):
                return events

    def close(self) -> None:
        """Return the connection to the pool if the whole response was read; otherwise close it, which
        aborts the engine's work."""
        if self.source is not None:
            self.source.close()
        self.first_chunk = b""
        if self.allocation is not None:
            self.allocation.release()

    def drop_first_chunk(self) -> None:
        """Drop the first chunk, because it was sent. A stream then counts what it holds at its next chunk."""
        self.first_chunk = b""
        if self.allocation is not None and self.sse is None:
            self.allocation.release()


async def _read_to_end(source: aiohttp.ClientResponse) -> None:
    """Read what follows the last event, for no client, so that the connection can be used again."""
    with contextlib.suppress(aiohttp.ClientError, OSError):
        async with asyncio.timeout(END_AFTER_DONE_S):
            while await source.content.readany():
                pass
