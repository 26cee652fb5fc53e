"""The client's side of a request: its body, and what is said to it."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from penstock.gateway.body_memory import BodyReservation
from penstock.gateway.guard import Receive
from penstock.gateway.openai import Refused
from penstock_engine.wire import REQUEST_ID_HEADER

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

CLIENT_LEFT_STATUS = 499
# A client that does not read may keep the last words from being sent for so long.
LAST_WORDS_S = 5.0

# A missing type is read as JSON, and so is the type that `curl -d` sends by itself.
JSON_TYPES = (b"application/json", b"application/x-www-form-urlencoded", b"")


class ClientLeft(Exception):
    """Before its request was complete."""


def checked_headers(headers: RawHeaders, *, limit_bytes: int) -> dict[bytes, bytes]:
    """A request's headers by name. Raises Refused: too large, or the body is of another
    type or encoded."""
    if sum(len(name) + len(value) for name, value in headers) > limit_bytes:
        raise Refused(431, f"the headers are larger than {limit_bytes} bytes")
    named: dict[bytes, bytes] = {}
    for name, value in headers:  # RFC 9110, 5.3: repeated fields are joined with commas
        named[name] = named[name] + b", " + value if name in named else value
    content_type = named.get(b"content-type", b"").split(b";")[0].strip().lower()
    if content_type not in JSON_TYPES:
        raise Refused(415, "the content type must be application/json")
    if named.get(b"content-encoding", b"identity") != b"identity":
        raise Refused(415, "the body must not be encoded")
    return named


async def read_body(
    receive: Receive,
    declared: bytes,
    memory: BodyReservation,
    *,
    limit_bytes: int,
    timeout_s: float,
) -> bytes:
    """Read the whole body. declared: its Content-Length, or empty. memory: reserved as bytes arrive.
    Raises Refused, ClientLeft."""
    if declared.isdigit() and int(declared[:20]) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    num_bytes = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeft
                chunk = message.get("body", b"")
                num_bytes += len(chunk)
                if num_bytes > limit_bytes:
                    raise _too_large(limit_bytes)
                memory.grow(len(chunk))
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks)
    except TimeoutError:
        raise Refused(408, f"the request was not complete after {timeout_s:g} s") from None


def _too_large(limit_bytes: int) -> Refused:
    return Refused(413, f"the request body is larger than {limit_bytes} bytes")


class Reply:
    """status: what the client was told, or 499 when it left before that."""

    def __init__(self, send: Send, request_id: str, *, closing: bool) -> None:
        self._send = send
        self._request_id = (REQUEST_ID_HEADER.encode(), request_id.encode())
        self._closing = closing
        self.status = CLIENT_LEFT_STATUS
        self.has_begun = self.has_whole_request = False

    async def begin(self, status: int, headers: RawHeaders) -> None:
        headers = [*headers, self._request_id]
        if self._closing:  # the next request of this client must find another gateway
            headers.append((b"connection", b"close"))
        self.status, self.has_begun = status, True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def more(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self, chunk: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": False})

    async def whole(self, status: int, headers: RawHeaders, body: bytes) -> None:
        await self.begin(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.end(body)

    async def refuse(self, refused: Refused) -> None:
        headers = [(b"content-type", b"application/json")]
        if refused.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % refused.retry_after_s))
        if not self.has_whole_request:  # the rest of it is not read
            self._closing = True
        await self.whole(refused.status, headers, refused.body())

    async def last_words(self, event: bytes) -> None:
        """End a stream of events with one more, if the client still reads."""
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self.end(event)
        except TimeoutError:
            pass  # unfinished: the server closes the connection
