"""Streams live scaling decisions over HTTP, for `penstock record` and `penstock explain`.

Nothing is stored: a stream begins with the full state of the rule, so it can be replayed on its own.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.clients.kubernetes.informer import Key
from penstock.clients.pods.shared_slots import SharedSlots
from penstock.core.scaling.recording import AnyTick, RecordingWriter

PATH = "/recording/{namespace}/{name}"
# Bound on the streams of all services together, each of which may buffer MAX_BEHIND ticks. One namespace
# alone may have half of them.
MAX_STREAMS = 16
# Time-out of the first decision. Normally there is one every 2 s, but fewer while the API server or
# the engines answer slowly.
FIRST_TICK_S = 25.0
# Ticks buffered for a slow listener. With more it is disconnected: a gap could not be replayed.
MAX_BEHIND = 16


class Recorder:
    """Fans out the ticks of each service to its listeners."""

    def __init__(self) -> None:
        self._listeners: dict[Key, set[asyncio.Queue[AnyTick | None]]] = {}
        # Streams hold them until they end. Some have no listener any more: their client was too slow.
        self._slots = SharedSlots(MAX_STREAMS)

    def publish(self, key: Key, tick: AnyTick) -> None:
        """Send a tick to the service's listeners. A listener that is too slow gets None, which ends it."""
        for queue in list(self._listeners.get(key, ())):
            if queue.qsize() < MAX_BEHIND:
                queue.put_nowait(tick)
            else:
                self._listeners[key].discard(queue)
                queue.put_nowait(None)

    @contextlib.contextmanager
    def _listen(self, key: Key) -> Iterator[asyncio.Queue[AnyTick | None]]:
        queue: asyncio.Queue[AnyTick | None] = asyncio.Queue()
        self._listeners.setdefault(key, set()).add(queue)
        try:
            yield queue
        finally:
            listeners = self._listeners.get(key, set())
            listeners.discard(queue)
            if not listeners:
                self._listeners.pop(key, None)

    async def stream(self, request: Request) -> Response:
        """Stream decisions as JSON lines, from the next one until the client disconnects.

        Answers 503 if there are too many streams, 404 if no decision is made in FIRST_TICK_S.
        """
        namespace, name = key = request.path_params["namespace"], request.path_params["name"]
        with contextlib.ExitStack() as listening:
            if not listening.enter_context(self._slots.hold_now(namespace)):
                text = f"too many recordings of namespace {namespace}, or of all, are in progress"
                return PlainTextResponse(text, 503)
            queue = listening.enter_context(self._listen(key))
            try:
                tick = await _first_tick(request, queue)
            except TimeoutError:
                text = (
                    f"no decision on {namespace}/{name} was made in {FIRST_TICK_S:.0f} s:"
                    " does the service exist, and is its scaling.mode Active or DryRun?"
                )
                return PlainTextResponse(text, 404)
            lines = _lines(RecordingWriter(f"{namespace}/{name}"), tick, queue)
            return RecordingResponse(lines, listening.pop_all())


class RecordingResponse(StreamingResponse):
    """A stream of a recording. listening: closed at its end, also if the client disconnects."""

    media_type = "application/jsonl"

    def __init__(self, lines: AsyncIterator[bytes], listening: contextlib.ExitStack) -> None:
        super().__init__(lines)
        self._listening = listening

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._listening:
            await super().__call__(scope, receive, send)


async def _first_tick(request: Request, queue: asyncio.Queue[AnyTick | None]) -> AnyTick | None:
    """Wait for the first tick. Returns None if the client disconnects before. Raises TimeoutError."""

    async def end_at_disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        queue.put_nowait(None)

    watching = asyncio.create_task(end_at_disconnect())
    try:
        return await asyncio.wait_for(queue.get(), FIRST_TICK_S)
    finally:
        watching.cancel()


async def _lines(
    writer: RecordingWriter, tick: AnyTick | None, queue: asyncio.Queue[AnyTick | None]
) -> AsyncIterator[bytes]:
    while tick is not None:
        for line in writer.lines(tick):
            yield f"{line}\n".encode()
        tick = await queue.get()
