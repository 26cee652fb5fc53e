"""Reads on for a moment after an answer to a request whose body has not been read."""

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Seconds for which the rest of a body is read. A client on the same network sends 8 MiB in less.
LINGER_S = 1.0


class LingeringClose:
    """Ends an answer when the request's body has been read, or after LINGER_S.

    A client that writes its whole body before it reads finds the connection reset, and no answer, if the
    server closes it with bytes unread.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = is_held = False

        async def receive_part() -> Message:
            nonlocal is_read
            message = await receive()
            is_read |= message["type"] != "http.request" or not message.get("more_body", False)
            return message

        async def send_part(message: Message) -> None:
            nonlocal is_held
            is_last = message["type"] == "http.response.body" and not message.get("more_body")
            if is_last and not is_read:
                is_held = True
                message = {**message, "more_body": True}
            await send(message)

        await self._app(scope, receive_part, send_part)
        if is_held:
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    while not is_read:
                        await receive_part()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
