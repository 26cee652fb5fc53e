"""The client's side of a proxied request: reads its headers and body, and writes the response."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from penstock.core.routing.apis import ErrorForm
from penstock.gateway.apis.errors import RequestError, body_as_event, error_event
from penstock.gateway.apis.sse import SseBuffer
from penstock.gateway.http.headers import (
    CONTROL_CHARACTER,
    FALLBACK_HEADER,
    LIMITED_FIELDS_HEADER,
    MODEL_HEADER,
    REVISION_HEADER,
    SERVICE_HEADER,
    RawHeaders,
)
from penstock.gateway.http.response_pieces import BODY_FOLLOWS, COUNTS_FOR_SERVICE
from penstock.gateway.limits.request_allocation import RequestAllocation
from penstock.gateway.request_lifecycle.cancellation import Receive
from penstock_engine.contract.wire import REQUEST_ID_HEADER

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CLIENT_LEFT_STATUS = 499
# Time limit for sending the last event of a stream to a client that does not read.
LAST_EVENT_TIMEOUT_S = 5.0

# Headers of a stream that begins before an engine has the request. Proxies must not buffer it.
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
WAITING_COMMENT = b": waiting for an engine\n\n"

JSON_TYPE = b"application/json"
# A missing type is read as JSON, and so is the type that `curl -d` sends by itself. Not from a browser, which
# sends `Origin`: with these types any web page could send a request without asking the gateway first.
JSON_TYPES = (JSON_TYPE, b"application/x-www-form-urlencoded", b"")


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete."""


def checked_headers(headers: RawHeaders, *, limit_bytes: int) -> dict[bytes, bytes]:
    """Return a request's headers by name. limit_bytes: bound on all names and values together.

    Raises RequestError if they are too large or have control characters, or the body is not JSON or is
    compressed.
    """
    if sum(len(name) + len(value) for name, value in headers) > limit_bytes:
        raise RequestError(431, f"the headers are larger than {limit_bytes} bytes")
    named: dict[bytes, bytes] = {}
    for name, value in headers:
        if CONTROL_CHARACTER.search(value):
            header = name.decode("latin-1")
            raise RequestError(400, f"the value of the header `{header}` has a control character")
        # RFC 9110, 5.3: repeated fields are joined with commas
        named[name] = named[name] + b", " + value if name in named else value
    content_type = named.get(b"content-type", b"").split(b";")[0].strip().lower()
    if content_type not in JSON_TYPES:
        raise RequestError(415, "the content type must be application/json")
    if content_type != JSON_TYPE and b"origin" in named:
        message = (
            "a browser must send the content type application/json: any web page can send a form"
        )
        raise RequestError(415, message)
    if named.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        message = "the body must not be compressed: send it without the header content-encoding"
        raise RequestError(415, message)
    return named


async def read_body(
    receive: Receive,
    declared: bytes,
    allocation: RequestAllocation,
    *,
    limit_bytes: int,
    timeout_s: float,
) -> bytes:
    """Read the whole body of a request.

    declared: its Content-Length, or empty. allocation: grows as bytes arrive, and may be given up.
    timeout_s: for all of it.
    Raises RequestError, ClientDisconnected.
    """
    if declared.isdigit() and int(declared[:20]) > limit_bytes:
        raise _too_large(limit_bytes)
    loop = asyncio.get_running_loop()
    deadline = asyncio.timeout(timeout_s)

    def stop_reading() -> None:
        if not deadline.expired():  # its own time may be over in the same moment
            deadline.reschedule(loop.time())

    with allocation.arriving(stop_reading):
        try:
            async with deadline:
                return await _read_chunks(receive, allocation, limit_bytes)
        except TimeoutError:
            message = f"the request was not complete after {timeout_s:g} s"
            if allocation.is_given_up:
                message = (
                    "the request was too slow to arrive while others needed its room: send it again"
                )
            raise RequestError(408, message) from None


async def _read_chunks(receive: Receive, allocation: RequestAllocation, limit_bytes: int) -> bytes:
    chunks: list[bytes] = []
    num_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk = message.get("body", b"")
        num_bytes += len(chunk)
        if num_bytes > limit_bytes:
            raise _too_large(limit_bytes)
        allocation.grow(len(chunk))
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _too_large(limit_bytes: int) -> RequestError:
    return RequestError(413, f"the request body is larger than {limit_bytes} bytes")


class ClientResponse:
    """Writes the response to one request.

    send: of ASGI. closing: whether the connection is closed after the response. status: the status
    that was sent; 499 before that, which stays if the client disconnects. num_bytes: of the body so
    far. is_request_read: whether the whole request was read; without that, an error closes the
    connection. is_held: whether the head of a stream and comments were sent while no engine has the request:
    what follows is a stream of events, whatever the engine answers. errors: form of errors. service:
    "namespace/name", empty while it is not known. revision: of the engine that was tried last. model: name of
    the model that answers. fallback: why it is a fallback; empty if it is none.
    """

    def __init__(
        self, send: Send, request_id: str, *, closing: bool, errors: ErrorForm = "OpenAI"
    ) -> None:
        self._send = send
        self.errors: ErrorForm = errors
        self.service = self.revision = self.model = self.fallback = ""
        self._request_id = (REQUEST_ID_HEADER.encode(), request_id.encode())
        self._closing = closing
        self.status = CLIENT_LEFT_STATUS
        self.rate_limits: RawHeaders = []  # headers about limits of the tenant
        self.limited_fields: tuple[str, ...] = ()  # of the request, which limits of its route set
        self.num_bytes = 0
        self.is_started = self.is_request_read = self.is_held = False

    async def start(
        self,
        status: int,
        headers: RawHeaders,
        *,
        counts_for_service: bool = True,
        body_follows: bool = False,
    ) -> None:
        """Send the status and the headers.

        counts_for_service: whether the connection counts for the request's service. Else it may be replaced
        while the response is unread. body_follows: whether a part of the body is sent at once.
        """
        if self.is_held:
            self.is_started = True
            return
        headers = [*headers, self._request_id, *self.rate_limits]
        for name, value in (
            (SERVICE_HEADER, self.service),
            (REVISION_HEADER, self.revision),
            (MODEL_HEADER, self.model),
            (FALLBACK_HEADER, self.fallback),
            (LIMITED_FIELDS_HEADER, ", ".join(self.limited_fields)),
        ):
            if value:
                headers.append((name, value.encode()))
        if self._closing:  # the next request of this client must find another gateway
            headers.append((b"connection", b"close"))
        self.status, self.is_started = status, True
        message = {"type": "http.response.start", "status": status, "headers": headers}
        message |= {COUNTS_FOR_SERVICE: counts_for_service, BODY_FOLLOWS: body_follows}
        await self._send(message)

    async def send_comment(self) -> None:
        """Send a comment of a stream that waits for an engine, after its head if that was not sent."""
        if not self.is_held:
            await self.start(200, STREAM_HEADERS, body_follows=True)
            self.is_held, self.is_started = True, False
        await self.send_chunk(WAITING_COMMENT)

    async def send_chunk(self, chunk: bytes) -> None:
        """Send a part of the body. Waits while the client has too much left to read."""
        self.num_bytes += len(chunk)
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self, chunk: bytes = b"") -> None:
        """Send the last part of the body."""
        self.num_bytes += len(chunk)
        await self._send({"type": "http.response.body", "body": chunk, "more_body": False})

    async def send(
        self, status: int, headers: RawHeaders, body: bytes, *, counts_for_service: bool = True
    ) -> None:
        """Send a complete response; an error, as an event if the stream has begun.

        counts_for_service: see `start`.
        """
        if self.is_held:
            self.is_started = True
            await self.finish_stream(body_as_event(body, self.errors))
            return
        headers = [*headers, (b"content-length", b"%d" % len(body))]
        await self.start(status, headers, counts_for_service=counts_for_service, body_follows=True)
        await self.finish(body)

    async def send_error(self, error: RequestError) -> None:
        """Send a complete error response."""
        headers = [(b"content-type", b"application/json")]
        if error.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % error.retry_after_s))
        if error.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if not self.is_request_read:  # its unread rest would be taken for the next request
            self._closing = True
        await self.send(error.status, headers, error.body(self.errors), counts_for_service=False)

    async def cut_stream(self, sse: SseBuffer | None, status: int, message: str) -> None:
        """End a stream that cannot be completed with an error event.

        sse: of the events that were sent. None: the response is no stream, and stays incomplete.
        """
        if sse is not None:
            event = error_event(status, message, self.errors)
            await self.finish_stream(b"\n\n" + event if sse.is_within_event else event)

    async def finish_stream(self, event: bytes) -> None:
        """End a stream with a last event, if the client still reads."""
        try:
            async with asyncio.timeout(LAST_EVENT_TIMEOUT_S):
                await self.finish(event)
        except TimeoutError:
            pass  # the response stays incomplete: the server closes the connection
