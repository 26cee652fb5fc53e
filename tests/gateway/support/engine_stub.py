"""A fake engine on a real socket, which misbehaves on demand."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.gateway.engine_answers import CHUNKS, LAST_EVENTS

from penstock.core.routing.pick import Endpoint

WHOLE = b'{"choices": [{"text": "all of it"}]}'


@dataclass
class Request:
    """A request that an engine received, with the socket to answer on."""

    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    method: str = "POST"

    @property
    def is_stream(self) -> bool:
        return bool(json.loads(self.body).get("stream"))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, content_type: str = "text/event-stream", status: str = "200 OK") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
        await self.send(head.encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def whole(self, body: bytes, status: str = "200 OK", extra: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{extra}"
        await self.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def reset(self) -> None:
        """A TCP reset, as from a process that was killed."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Behavior = Callable[[Request], Awaitable[None]]


async def answer(request: Request) -> None:
    """Answer as a healthy engine does."""
    if not request.is_stream:
        await request.whole(WHOLE)
        return
    await request.head()
    for chunk in CHUNKS:
        await request.chunk(chunk)
    await request.chunk(LAST_EVENTS[request.path.partition("?")[0]])
    await request.end()


@dataclass
class Engine:
    """A fake engine: an HTTP server that handles each request with `behavior`."""

    name: str
    revision: str
    behavior: Behavior
    requests: list[Request] = field(default_factory=list)
    active: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a client hung up on a request
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def endpoint(self) -> Endpoint:
        return Endpoint(f"default/{self.name}", f"127.0.0.1:{self.port}", self.revision)

    async def stop(self) -> None:
        """Close all connections and refuse new ones."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        length = int(headers.get("content-length", "0"))
        method, path, _ = first.split()
        request = Request(path, headers, await reader.readexactly(length), writer, method)
        self.requests.append(request)
        self.active += 1
        self.arrived.set()
        work = asyncio.ensure_future(self.behavior(request))
        hangup = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({work, hangup}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() or isinstance(work.exception(), ConnectionError):
                self.left.set()
                return False
            work.result()
            return not writer.is_closing()
        finally:
            self.active -= 1
            for each in (work, hangup):
                each.cancel()
            await asyncio.gather(work, hangup, return_exceptions=True)
