"""Sends responses in pieces, each when the client's connection has taken the one before."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

# Bound on the bytes of a response that one connection has unsent, beside the kernel's buffer: 4096 clients
# that do not read hold 64 MiB. A piece costs 20 us, so a response of 8 MiB takes 10 ms.
RESPONSE_PIECE_BYTES = 16 << 10
# Key in the ASGI message that starts a response: whether its connection counts for a service. Others may be
# replaced while they are unread.
COUNTS_FOR_SERVICE = "penstock.counts_for_service"
# Key in the same message: whether a part of the body follows at once, with which the head is sent.
BODY_FOLLOWS = "penstock.body_follows"


class Writes(Protocol):
    """The buffer of a connection (`HalfClosingTransport`), which can hold back pieces of a response."""

    def hold(self) -> None:
        """Hold back what is written from now on."""

    def flush(self) -> None:
        """Send what was held back."""


async def send_in_pieces(
    message: Message, send: Send, writes: Writes, drain: Callable[[], Awaitable[None]]
) -> None:
    """Send an ASGI message of a response, and return when none of its bytes is unsent.

    A head whose body follows at once is sent with it. send: of the server. The end of a body is sent after
    all of it, so that until then the server still has the response as incomplete. drain: waits until the
    connection has nothing unsent, or is lost.
    """
    if message["type"] == "http.response.body":
        body, is_last = memoryview(message.get("body", b"")), not message.get("more_body", False)
        for start in range(0, len(body), RESPONSE_PIECE_BYTES):
            piece = body[start : start + RESPONSE_PIECE_BYTES]
            await send({"type": message["type"], "body": piece, "more_body": True})
            writes.flush()
            await drain()
        if not is_last:
            return
        message = {"type": message["type"], "body": b"", "more_body": False}
    elif message.get(BODY_FOLLOWS, False):
        writes.hold()
        await send(message)
        return
    await send(message)
    writes.flush()
    await drain()
