"""Work that ends when its client leaves: before the answer, and while it is streamed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import TypeVar

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from penstock_engine.server.intake import ClientGone

T = TypeVar("T")


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled as soon as the client leaves. Raises ClientGone.

    The body must have been read: every message but a disconnect is thrown away.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A stream whose first event exists already. A client that leaves ends it at once."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes]) -> None:
        super().__init__()
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._relay(send))
        except ClientGone:
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
