"""An engine whose model's name says how far its answers go, and that times when it loses a request."""

import asyncio
import json
import time
from dataclasses import dataclass, field

from tests.gateway.engine_answers import DONE, LAST_EVENTS

# Models, by how far their answers go.
ANSWERS, SILENT, BEGINS = "answers", "silent", "begins"
EVENT = b'data: {"choices":[{"delta":{"content":" a"}}]}\n\n'
USAGE = (
    b'"usage":{"prompt_tokens":7,"completion_tokens":3,"input_tokens":7,"output_tokens":3,'
    b'"total_tokens":10}'
)
WHOLE = b'{"choices":[{"text":" a","message":{"content":" a"}}],%b}' % USAGE


@dataclass
class Requests:
    """The requests that the engine has. begun, lost: set when one begins, and when its connection ends."""

    num_open: int = 0
    begun: dict[str, asyncio.Event] = field(default_factory=dict)
    lost_s: dict[str, asyncio.Future[float]] = field(default_factory=dict)

    def expect(self, request_id: str) -> None:
        """Prepare for a request."""
        self.begun[request_id] = asyncio.Event()
        self.lost_s[request_id] = asyncio.get_running_loop().create_future()

    def forget(self, request_id: str) -> None:
        """Drop what is kept of a request."""
        del self.begun[request_id], self.lost_s[request_id]


class EngineConnection(asyncio.Protocol):
    """A connection of the engine, with one request at a time."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._received = b""
        self._open_id = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        if not self._open_id:
            return
        self._requests.num_open -= 1
        lost_s = self._requests.lost_s.get(self._open_id)
        if lost_s is not None and not lost_s.done():
            lost_s.set_result(time.monotonic())

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = _header(head, b"content-length")
        if end and len(body) >= int(length or 0):
            self._received = b""
            path = head.split(b" ")[1].decode()
            self._answer(path, _header(head, b"x-request-id").decode(), json.loads(body))

    def _answer(self, path: str, request_id: str, body: dict[str, object]) -> None:
        model, is_stream = body["model"], bool(body.get("stream"))
        self._open_id = request_id
        self._requests.num_open += 1
        if model != SILENT:
            self._transport.write(_stream(path, model) if is_stream else _whole(model))
        if model == ANSWERS:
            self._requests.num_open -= 1
            self._open_id = ""
        if (begun := self._requests.begun.get(request_id)) is not None:
            begun.set()


def _header(head: bytes, name: bytes) -> bytes:
    return head.lower().partition(b"\r\n%b: " % name)[2].partition(b"\r\n")[0]


def _stream(path: str, model: object) -> bytes:
    """A stream: all of it, or its first event."""
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    events = EVENT
    if model == ANSWERS:
        events += b"data: {%b}\n\n" % USAGE + LAST_EVENTS.get(path, DONE)
    end = b"0\r\n\r\n" if model == ANSWERS else b""
    return b"%b%x\r\n%b\r\n%b" % (head, len(events), events, end)


def _whole(model: object) -> bytes:
    """Another answer: all of it, or its first half."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    sent = WHOLE if model == ANSWERS else WHOLE[: len(WHOLE) // 2]
    return head % len(WHOLE) + sent
