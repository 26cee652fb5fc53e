"""Tests of event streams: comments that keep a silent connection alive, and what ends a stream."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from penstock_engine.server.transport import streaming
from penstock_engine.server.transport.streaming import KEEP_ALIVE, EventStream

Sent = list[bytes]


async def connected() -> Any:
    """Never receives anything: the client stays connected."""
    await asyncio.Event().wait()


async def test_a_silent_stream_has_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.001)
    sent: Sent = []
    has_comments = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message.get("body"))
        if sent.count(KEEP_ALIVE) == 2:
            has_comments.set()

    async def rest() -> AsyncGenerator[bytes]:
        await has_comments.wait()
        yield b"data: 2\n\n"

    await EventStream(b"data: 1\n\n", rest())({}, connected, send)
    events = [body for body in sent if body and body != KEEP_ALIVE]
    assert events == [b"data: 1\n\n", b"data: 2\n\n"]
    assert sent[-1] == b""
    assert sent[1:4] == [b"data: 1\n\n", KEEP_ALIVE, KEEP_ALIVE]


async def test_a_busy_stream_has_no_comments_and_none_follows_its_end() -> None:
    sent: Sent = []

    async def send(message: Any) -> None:
        sent.append(message.get("body"))

    async def rest() -> AsyncGenerator[bytes]:
        for number in range(100):
            await asyncio.sleep(0)
            yield b"data: %d\n\n" % number

    await EventStream(b"data: first\n\n", rest())({}, connected, send)
    numbered = [b"data: %d\n\n" % number for number in range(100)]
    assert sent == [None, b"data: first\n\n", *numbered, b""]
    assert asyncio.all_tasks() == {asyncio.current_task()}
