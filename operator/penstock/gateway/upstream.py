"""Requests to engines: one pool of connections, and what an engine can answer or fail to."""

import asyncio
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp

from penstock.core.retry import Failure, failure_of
from penstock.gateway.answer_count import error_status
from penstock.gateway.events import DONE_EVENT, EventStream
from penstock.gateway.guard import Guard, Phase
from penstock.gateway.settings import GatewaySettings

# Engines close an idle connection after 5 s (uvicorn's default): ours must be older sooner.
IDLE_CONNECTION_S = 4.0
# Below it one write is cheaper, and what an engine does not take at once is a small copy.
PIECES_FROM_BYTES = 64 << 10
# An engine that has said DONE may take so long to end its answer; then the connection is closed instead.
END_AFTER_DONE_S = 1.0

HOP_BY_HOP = frozenset(
    {
        b"connection", b"http2-settings", b"keep-alive", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
# Keys are for the gateway. Encodings would hide where events end.
NOT_FOR_ENGINES = HOP_BY_HOP | {
    b"accept-encoding", b"api-key", b"authorization", b"content-length", b"cookie", b"expect",
    b"host", b"proxy-authorization", b"x-api-key", b"x-request-id",
}  # fmt: skip
# Headers between the gateway and its engines.
INTERNAL_PREFIX = b"x-penstock-"
NOT_FOR_CLIENTS = HOP_BY_HOP | {b"content-length", b"date", b"server", b"x-request-id"}

RawHeaders = list[tuple[bytes, bytes]]


class AttemptFailed(Exception):
    """Nothing of this attempt has reached the client. answer: the engine's own word, of an ERROR, to be
    passed on if no other engine gives a better one."""

    def __init__(self, failure: Failure, answer: "Answer | None" = None) -> None:
        super().__init__(failure.value)
        self.failure = failure
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The request that each tried engine is sent. path: with the query. is_stream: asks for events."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    is_stream: bool


class Cut(Exception):
    """The engine's answer broke off."""


@dataclass(slots=True)
class Answer:
    """An answer whose first bytes are here. response: where the rest comes from; None: that is all.

    events: set when the answer is a stream of events.
    """

    status: int
    headers: RawHeaders
    first: bytes
    response: aiohttp.ClientResponse | None
    events: EventStream | None

    async def more(self) -> bytes:
        """The next bytes to pass on; empty at the end. Raises Cut."""
        if self.response is None:
            return b""
        while True:
            try:
                chunk = await self._read(self.response)
            except (aiohttp.ClientError, OSError) as error:
                if self.events is not None and self.events.is_done:
                    return b""
                raise Cut from error
            if self.events is None:
                return chunk
            if not chunk:
                rest = self.events.finish()
                if not rest and not self.events.is_done:
                    raise Cut
                return rest
            if whole := self.events.feed(chunk):
                return whole

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """The next bytes; behind DONE only for a moment, so that the connection can be used again."""
        if self.events is None or not self.events.is_done:
            return await response.content.readany()
        try:
            async with asyncio.timeout(END_AFTER_DONE_S):
                return await response.content.readany()
        except TimeoutError:
            return b""

    def close(self) -> None:
        """Give the connection back when the answer is all read; else end it, and with it the work."""
        if self.response is not None:
            self.response.close()


class Upstream:
    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding", "User-Agent", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_timeout_s),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def open(self, address: str, outgoing: Outgoing, guard: Guard) -> Answer:
        """Send the request and wait for the first bytes, which of a whole answer are its last: it may
        take all the time that a request has. Raises AttemptFailed."""
        settings = self._settings
        first_byte_s = (
            settings.first_byte_timeout_s if outgoing.is_stream else settings.total_timeout_s
        )
        guard.allow(Phase.FIRST_BYTE, first_byte_s)
        try:
            response = await self._session.post(
                f"http://{address}{outgoing.path}",
                data=body_payload(outgoing.body),
                headers=outgoing.headers,
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise AttemptFailed(Failure.CONNECT) from error
        except (aiohttp.ClientError, OSError) as error:
            raise AttemptFailed(Failure.RESET) from error
        answer = None
        try:
            answer = await self._begin(response)
            failure = failure_of(answer.status)
            if failure is not None:
                is_whole = answer.response is None
                raise AttemptFailed(failure, answer if is_whole else None)
            return answer
        except (aiohttp.ClientError, OSError) as error:
            raise AttemptFailed(Failure.RESET) from error
        finally:
            if answer is None or answer.response is None or failure_of(answer.status):
                response.close()

    async def _begin(self, response: aiohttp.ClientResponse) -> Answer:
        headers = forwarded(response.raw_headers, NOT_FOR_CLIENTS)
        if response.status == 200 and response.content_type == "text/event-stream":
            return await _begin_stream(response, headers)
        held = bytearray()
        while chunk := await response.content.readany():
            held += chunk
            if len(held) > self._settings.max_buffered_answer_bytes:
                return Answer(response.status, headers, bytes(held), response, None)
        return Answer(response.status, headers, bytes(held), None, None)


async def _begin_stream(response: aiohttp.ClientResponse, headers: RawHeaders) -> Answer:
    """Raises AttemptFailed, also for a stream that begins with an error of the engine's."""
    events = EventStream()
    while chunk := await response.content.readany():
        if first := events.feed(chunk):
            status = error_status(first)
            failure = None if status is None else failure_of(status)
            if failure is None:
                return Answer(200, headers, first, response, events)
            end = b"" if events.is_done else DONE_EVENT
            raise AttemptFailed(failure, Answer(200, headers, first + end, None, None))
    raise AttemptFailed(Failure.RESET)


def forwarded(headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]) -> RawHeaders:
    """Headers that may pass: not those dropped, no internal ones, and none that `Connection` names."""
    kept = [(name.lower(), value) for name, value in headers]
    named = {
        token.strip().lower()
        for name, value in kept
        if name == b"connection"
        for token in value.split(b",")
    }
    return [
        (name, value)
        for name, value in kept
        if name not in dropped and name not in named and not name.startswith(INTERNAL_PREFIX)
    ]


def header_text(value: bytes) -> str:
    """A header's value for aiohttp, which writes UTF-8: the same bytes, unless they are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def body_payload(body: bytes) -> bytes | io.BytesIO:
    """The body as aiohttp sends it: a large one in pieces, as fast as the engine reads, uncopied."""
    return body if len(body) <= PIECES_FROM_BYTES else io.BytesIO(body)
