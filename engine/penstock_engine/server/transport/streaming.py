"""Cancels work when its client disconnects, before the answer and while it is streamed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import TypeVar

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from penstock_engine.server.transport.arriving_bodies import ClientDisconnected

T = TypeVar("T")

# Seconds without an event after which a stream sends a comment, which clients skip. Proxies often end a
# connection that is silent for 60 s, some after 15 s.
KEEP_ALIVE_S = 10.0
KEEP_ALIVE = b": keep-alive\n\n"


async def cancel_on_disconnect(receive: Receive, work: Awaitable[T]) -> T:
    """Returns the result of `work`; cancels it if the client disconnects first.

    The body must have been read, because other messages of `receive` are dropped. Raises
    ClientDisconnected.
    """
    working = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnected
    finally:
        working.cancel()
        disconnected.cancel()
        await asyncio.gather(working, disconnected, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A stream of server-sent events. It ends at once when the client disconnects.

    While there is no event, comments keep the connection alive. first: the first event. rest: the
    following ones.
    """

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes]) -> None:
        super().__init__()
        self._first = first
        self._rest = rest
        self._last_sent_s = 0.0  # time of the event loop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await cancel_on_disconnect(receive, self._relay(send))
        except ClientDisconnected:
            return
        finally:
            await self._rest.aclose()

    async def _relay(self, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send_part(send, self._first)
        keeping_alive = asyncio.create_task(self._keep_alive(send))
        try:
            async for event in self._rest:
                await self._send_part(send, event)
        finally:
            keeping_alive.cancel()
            await asyncio.gather(keeping_alive, return_exceptions=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_part(self, send: Send, body: bytes) -> None:
        self._last_sent_s = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _keep_alive(self, send: Send) -> None:
        """Sends a comment whenever nothing was sent for some time."""
        loop = asyncio.get_running_loop()
        while True:
            wait_s = self._last_sent_s + KEEP_ALIVE_S - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            else:
                await self._send_part(send, KEEP_ALIVE)
