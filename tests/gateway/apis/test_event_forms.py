"""Forms of events that the engines of other projects send: comments, null errors, ends of two CRs."""

import asyncio
import json

import pytest
from tests.gateway.engine_answers import DONE, EVENT, resets, stream

from penstock.gateway.apis.sse import MAX_HELD_BYTES

COMMENT = b": keep-alive\n\n"


async def pause():
    """Lets the gateway read a chunk before the next one is sent."""
    await asyncio.sleep(0.01)


def in_pieces(*chunks):
    async def behave(request):
        await request.head()
        for chunk in chunks:
            await request.chunk(chunk)
            await pause()
        await request.end()

    return behave


async def outcomes(front):
    """Numbers of requests that ended and that failed."""
    await front.idle()
    reading = front.gateway.state.stats.get("default/chat").reading(0.0, 0.0)
    return reading.ended, reading.failed


NULL_ERROR = b'data: {"error":null,"choices":[{"delta":{"content":"a"}}]}\n\n'
CR_EVENT = EVENT.replace(b"\n", b"\r")


@pytest.mark.parametrize("first", [NULL_ERROR, CR_EVENT])
async def test_healthy_stream_is_generated_once(start_engine, start_gateway, first):
    engines = [await start_engine(stream(first, DONE)) for _ in range(2)]
    front = await start_gateway(*engines)
    for _ in range(5):
        assert await front.ask() == (200, first + DONE)
    assert sum(len(engine.requests) for engine in engines) == 5
    assert await outcomes(front) == (5, 0)
    assert not front.gateway.state.endpoints.suspects


@pytest.mark.parametrize("is_one_chunk", [True, False])
async def test_comment_after_done_is_no_truncation(start_engine, start_gateway, is_one_chunk):
    chunks = [EVENT, DONE + COMMENT] if is_one_chunk else [EVENT, DONE, COMMENT]
    front = await start_gateway(await start_engine(in_pieces(*chunks)))
    status, body = await front.ask()
    assert (status, body.count(DONE), b'"error"' in body) == (200, 1, False)
    assert await outcomes(front) == (1, 0)
    assert not front.gateway.state.endpoints.suspects


async def test_comments_are_neither_tokens_nor_the_first_byte(start_engine, start_gateway):
    chunks = [COMMENT] * 20 + [EVENT] * 3 + [COMMENT] * 20 + [DONE]
    front = await start_gateway(await start_engine(in_pieces(*chunks)))
    assert (await front.ask("/v1/completions"))[0] == 200
    assert await outcomes(front) == (1, 0)
    assert front.gateway.state.stats.get("default/chat").output_tokens == 3


async def test_comments_within_a_stream_reach_the_client(start_engine, start_gateway):
    """They keep the connections of clients and proxies open while the engine computes."""
    front = await start_gateway(await start_engine(in_pieces(EVENT, COMMENT, EVENT, DONE)))
    assert await front.ask() == (200, EVENT + COMMENT + EVENT + DONE)


async def test_engine_that_fails_after_a_comment_is_retried(start_engine, start_gateway):
    async def comment_and_reset(request):
        await request.head()
        await request.chunk(COMMENT)
        await pause()
        await resets(request)

    bad, good = await start_engine(comment_and_reset), await start_engine(stream(EVENT, DONE))
    front = await start_gateway(bad, good)
    for _ in range(50):  # more than enough for one to go to the first engine
        assert await front.ask() == (200, EVENT + DONE)
        if bad.requests:
            break
    assert bad.requests


async def test_comments_keep_a_silent_stream_within_its_limit(start_engine, start_gateway):
    """An engine that computes a long tool call sends nothing else between two chunks."""
    silence = [COMMENT] * 80  # at least 0.8 s
    front = await start_gateway(
        await start_engine(in_pieces(EVENT, *silence, EVENT, DONE)), between_chunks_timeout_s=0.5
    )
    status, body = await front.ask()
    assert (status, body.count(EVENT), b'"error"' in body) == (200, 2, False)


async def test_error_event_is_apart_from_half_of_a_large_event(start_engine, start_gateway):
    is_read = asyncio.Event()

    async def half_an_event(request):
        await request.head()
        await request.chunk(b"data: " + b"a" * MAX_HELD_BYTES)
        await is_read.wait()  # a reset drops what the gateway has not read yet
        request.reset()

    front = await start_gateway(await start_engine(half_an_event), max_attempts=1)
    async with front.post() as got:
        start = await got.content.readexactly(MAX_HELD_BYTES)
        is_read.set()
        body = start + await got.read()
    *_, error, done, rest = body.split(b"\n\n")
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == 502
    assert (done, rest) == (b"data: [DONE]", b"")
