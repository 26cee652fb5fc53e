"""Streams live scaling decisions over HTTP, for `penstock record` and `penstock explain`.

Nothing is stored: a stream begins with the full state of the rule, so it can be replayed on its own.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from aiohttp import web

from penstock.clients.informer import Key
from penstock.core.scaling.recording import AnyTick, RecordingWriter

logger = logging.getLogger(__name__)

PATH = "/recording/{namespace}/{name}"
MAX_LISTENERS = 8  # streams of all services together; each may buffer MAX_BEHIND ticks
# Time-out of the first decision. Normally there is one every 2 s, but fewer while the API server or
# the engines answer slowly.
FIRST_TICK_S = 25.0
# Ticks buffered for a slow listener. With more it is disconnected: a gap could not be replayed.
MAX_BEHIND = 16


class Recorder:
    """Fans out the ticks of each service to its listeners."""

    def __init__(self) -> None:
        self._listeners: dict[Key, set[asyncio.Queue[AnyTick | None]]] = {}

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
            self._listeners[key].discard(queue)
            if not self._listeners[key]:
                del self._listeners[key]

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Stream decisions as JSON lines, from the next one until the client disconnects.

        Answers 503 if there are too many streams, 404 if no decision is made in FIRST_TICK_S.
        """
        key = request.match_info["namespace"], request.match_info["name"]
        if sum(map(len, self._listeners.values())) >= MAX_LISTENERS:
            return web.Response(status=503, text="too many recordings are in progress")
        with self._listen(key) as queue:
            try:
                tick = await asyncio.wait_for(queue.get(), FIRST_TICK_S)
            except TimeoutError:
                text = (
                    f"no decision on {'/'.join(key)} was made in {FIRST_TICK_S:.0f} s:"
                    " does the service exist, and is its scaling.mode Active or DryRun?"
                )
                return web.Response(status=404, text=text)
            writer = RecordingWriter("/".join(key))
            response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
            with contextlib.suppress(ConnectionResetError):  # the client has disconnected
                await response.prepare(request)
                while tick is not None:
                    for line in writer.lines(tick):
                        await response.write(f"{line}\n".encode())
                    tick = await queue.get()
            return response
