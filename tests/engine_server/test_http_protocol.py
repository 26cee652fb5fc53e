"""Time limits for the heads of requests, over real sockets."""

import asyncio

import pytest
import uvicorn

from penstock_engine.server.http_protocol import HeadTimeoutProtocol

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
SLOW_REQUEST = REQUEST.replace(b"/", b"/slow", 1)


class ShortTimeout(HeadTimeoutProtocol):
    head_timeout_s = 1.0


async def app(scope, receive, send):
    """Answers, at /slow after the time that a head may take."""
    await receive()
    if scope["path"] == "/slow":
        # Of the timers of one event loop, that of the connection fires first, if it still runs.
        await asyncio.sleep(ShortTimeout.head_timeout_s)
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def connect():
    """`await connect()` -> reader and writer of a connection to the server."""
    config = uvicorn.Config(app, port=0, http=ShortTimeout, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    writers = []

    async def open_one():
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    yield open_one
    for writer in writers:
        writer.close()
    server.should_exit = True
    await serving


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
async def test_connection_without_a_head_is_closed(connect, sent):
    reader, writer = await connect()
    writer.write(sent)
    async with asyncio.timeout(10):
        assert await reader.read() == b""


async def test_answer_may_take_longer_and_the_connection_stays(connect):
    reader, writer = await connect()
    for _ in range(2):
        writer.write(SLOW_REQUEST)
        await reader.readuntil(b"ok")


@pytest.mark.parametrize("is_pipelined", [True, False])
async def test_further_head_that_does_not_end_is_closed(connect, is_pipelined):
    reader, writer = await connect()
    writer.write(REQUEST + (b"GET /" if is_pipelined else b""))
    await reader.readuntil(b"ok")
    if not is_pipelined:
        writer.write(b"GET /")
    async with asyncio.timeout(10):
        assert await reader.read() == b""
