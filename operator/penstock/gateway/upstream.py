"""One request to one engine: send it, and hand its answer on as bytes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from penstock.gateway.settings import GatewaySettings

# Headers that belong to one connection, or that a proxy sets anew. The client's key is for the
# gateway; engines never see it.
NOT_FORWARDED = frozenset(
    {
        b"authorization", b"connection", b"content-length", b"cookie", b"expect", b"host",
        b"keep-alive", b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
RETURNED = frozenset({"content-type", "retry-after", "x-request-id", "cache-control"})


class UpstreamFailed(Exception):
    """The engine did not answer, or not to the end. refused: it never took the connection."""

    def __init__(self, what: str, *, refused: bool = False, timed_out: bool = False) -> None:
        super().__init__(what)
        self.refused = refused
        self.timed_out = timed_out


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer whose first byte has come. rest raises UpstreamFailed when it breaks."""

    status: int
    headers: list[tuple[bytes, bytes]]
    first: bytes
    rest: AsyncIterator[bytes]
    is_stream: bool


class Upstream:
    """A pool of connections to engines."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def post(
        self, address: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[Answering]:
        """Leaving the context closes the connection unless the answer was read to its end."""
        try:
            async with asyncio.timeout(self._settings.first_byte_timeout_s):
                response = await self._session.post(
                    f"http://{address}{path}", data=body, headers=headers, allow_redirects=False
                )
        except aiohttp.ClientConnectorError as error:
            raise UpstreamFailed("refused the connection", refused=True) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise UpstreamFailed("did not take the connection in time", refused=True) from error
        except TimeoutError as error:
            raise UpstreamFailed("gave no answer in time", timed_out=True) from error
        except aiohttp.ClientError as error:
            raise UpstreamFailed("broke the connection") from error
        try:
            chunks = self._chunks(response)
            first = await self._first(chunks)
            kept = [
                (name.lower().encode(), value.encode("latin-1"))
                for name, value in response.headers.items()
                if name.lower() in RETURNED
            ]
            is_stream = response.headers.get("Content-Type", "").startswith("text/event-stream")
            yield Answering(response.status, kept, first, chunks, is_stream)
        finally:
            response.close()

    async def _first(self, chunks: AsyncIterator[bytes]) -> bytes:
        try:
            async with asyncio.timeout(self._settings.first_byte_timeout_s):
                return await anext(chunks, b"")
        except TimeoutError as error:
            raise UpstreamFailed("gave no answer in time", timed_out=True) from error

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        is_first = True
        content = response.content
        while True:
            limit_s = None if is_first else self._settings.between_chunks_timeout_s
            try:
                async with asyncio.timeout(limit_s):
                    chunk = await content.readany()
            except TimeoutError as error:
                raise UpstreamFailed("went silent", timed_out=True) from error
            except aiohttp.ClientError as error:
                raise UpstreamFailed("broke the connection") from error
            if not chunk:
                return
            is_first = False
            yield chunk
