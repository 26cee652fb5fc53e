"""Sends requests to engines through one connection pool, and classifies their failures."""

import asyncio
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self

import aiohttp

from penstock.core.routing.retry import Failure, failure_of
from penstock.gateway.answer_count import error_status
from penstock.gateway.events import DONE_EVENT, EventStream
from penstock.gateway.guard import Guard, Phase
from penstock.gateway.settings import GatewaySettings

# Engines close an idle connection after 5 s (uvicorn's default): the gateway must do it first.
IDLE_CONNECTION_S = 4.0
# Bodies above this are sent in pieces. For a smaller one a single write is cheaper, and the copy that
# the transport makes of unsent bytes is small.
PIECES_FROM_BYTES = 64 << 10
# How long an engine may take to end its answer after DONE; then the connection is closed.
END_AFTER_DONE_S = 1.0

# Statuses that an answer may have: 1xx is not final, and others are not valid HTTP.
FINAL_STATUSES = range(200, 600)

HOP_BY_HOP = frozenset(
    {
        b"connection", b"http2-settings", b"keep-alive", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
# Credentials are the gateway's business. A compressed answer would hide where events end.
NOT_FOR_ENGINES = HOP_BY_HOP | {
    b"accept-encoding", b"api-key", b"authorization", b"content-length", b"cookie", b"expect",
    b"host", b"proxy-authorization", b"x-api-key", b"x-request-id",
}  # fmt: skip
# Headers that the gateway and its engines use among themselves.
INTERNAL_PREFIX = b"x-penstock-"
NOT_FOR_CLIENTS = HOP_BY_HOP | {b"content-length", b"date", b"server", b"x-request-id"}

RawHeaders = list[tuple[bytes, bytes]]


class AttemptFailed(Exception):
    """An attempt failed before anything reached the client. answer: the engine's own error answer, for
    a Failure.ERROR; it is passed on if no other engine answers."""

    def __init__(self, failure: Failure, answer: "Answer | None" = None) -> None:
        super().__init__(failure.value)
        self.failure = failure
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The request as sent to each engine that is tried. path: with the query. is_stream: whether a
    stream is asked for."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    is_stream: bool


class Cut(Exception):
    """The engine's answer broke off."""


@dataclass(slots=True)
class Answer:
    """An answer whose first bytes have arrived. response: the source of the rest; None: that is all.

    events: set when the answer is a stream of events. on_release: called once, when `first` is no
    longer held.
    """

    status: int
    headers: RawHeaders
    first: bytes
    response: aiohttp.ClientResponse | None
    events: EventStream | None
    on_release: Callable[[], None] | None = None

    @property
    def is_error(self) -> bool:
        """Whether the status, or an error event among the first ones, says that there is no answer."""
        is_event = self.events is not None and error_status(self.first) is not None
        return self.status >= 400 or is_event

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
        """Read the next bytes; after DONE wait only briefly for the end, to reuse the connection."""
        if self.events is None or not self.events.is_done:
            return await response.content.readany()
        try:
            async with asyncio.timeout(END_AFTER_DONE_S):
                return await response.content.readany()
        except TimeoutError:
            return b""

    def close(self) -> None:
        """Return the connection to the pool if the answer was read; else close it, which aborts the
        engine's work."""
        if self.response is not None:
            self.response.close()
        self.release()

    def release(self) -> None:
        """Count the first bytes as sent, and drop them."""
        if self.on_release is not None:
            self.on_release()
            self.on_release, self.first = None, b""


class Upstream:
    """Sends requests to engines. held_bytes: bytes of answers (not streams) that are not sent to their
    clients yet."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.held_bytes = 0
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
        """Send the request and wait for the first bytes of a stream, or for all of another answer,
        which may take as long as the whole request may. Raises AttemptFailed."""
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
        is_open = False
        try:
            answer = await self._begin(response)
            if answer.status not in FINAL_STATUSES:
                answer.close()
                raise AttemptFailed(Failure.RESET)
            failure = failure_of(answer.status)
            if failure is not None:
                whole = None if answer.response else replace(answer, on_release=None)
                answer.close()
                raise AttemptFailed(failure, whole)
            is_open = answer.response is not None
            return answer
        except (aiohttp.ClientError, OSError) as error:
            raise AttemptFailed(Failure.RESET) from error
        finally:
            if not is_open:
                response.close()

    async def _begin(self, response: aiohttp.ClientResponse) -> Answer:
        headers = forwarded(response.raw_headers, NOT_FOR_CLIENTS)
        if response.status == 200 and response.content_type == "text/event-stream":
            return await _begin_stream(response, headers)
        held = bytearray()
        try:
            is_whole = await self._hold(response, held)
        except BaseException:
            self._release(len(held))
            raise
        rest = None if is_whole else response
        release = partial(self._release, len(held))
        return Answer(response.status, headers, bytes(held), rest, None, release)

    async def _hold(self, response: aiohttp.ClientResponse, held: bytearray) -> bool:
        """Read an answer into `held`. False at a limit: pass the rest on as it arrives."""
        settings = self._settings
        while chunk := await response.content.readany():
            held += chunk
            self.held_bytes += len(chunk)
            if (
                len(held) > settings.max_buffered_answer_bytes
                or self.held_bytes > settings.max_held_answer_bytes
            ):
                return False
        return True

    def _release(self, num_bytes: int) -> None:
        self.held_bytes -= num_bytes


async def _begin_stream(response: aiohttp.ClientResponse, headers: RawHeaders) -> Answer:
    """Wait for the first event of a stream. Raises AttemptFailed, also if it is an engine error."""
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
    """Headers to pass on: without those dropped, internal ones, and those that `Connection` names."""
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
    """A header's value as text. aiohttp writes UTF-8, so the bytes stay the same if they are UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def body_payload(body: bytes) -> bytes | io.BytesIO:
    """The body for aiohttp: a large one as a file, which is sent in pieces without a copy."""
    return body if len(body) <= PIECES_FROM_BYTES else io.BytesIO(body)
