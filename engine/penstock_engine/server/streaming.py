"""Cancels work when its client disconnects, before the answer and while it is streamed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import TypeVar

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from penstock_engine.server.preprocessing import ClientDisconnected

T = TypeVar("T")


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

    first: the first event. rest: the following ones.
    """

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes]) -> None:
        super().__init__()
        self._first = first
        self._rest = rest

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
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async for event in self._rest:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
