"""Pipelined requests, and responses that the client does not read."""

import asyncio
import json

import pytest
from tests.gateway.engine_answers import DONE

from penstock.gateway.settings import GatewaySettings


def request(stream=False):
    body = json.dumps({"model": "chat", "stream": stream}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


async def test_memory_of_pipelined_requests_is_bounded(start_engine, start_gateway):
    """A long-lived connection with further requests before each response."""
    may_answer = asyncio.Semaphore(0)

    async def behave(request):
        await may_answer.acquire()
        await request.whole(b"{}")

    front = await start_gateway(await start_engine(behave))
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    limit_bytes = GatewaySettings().max_header_bytes
    ahead = request() * (limit_bytes // len(request()) - 1)
    writer.write(request())
    for _ in range(4):
        writer.write(ahead)
        await asyncio.sleep(0.05)
        for connection in front.server.server_state.connections:
            assert len(connection.conn.trailing_data[0]) <= limit_bytes
        may_answer.release()
        if not await reader.read(1 << 16):
            break
    assert await reader.read() == b""  # closed, behind a whole answer
    writer.close()


async def test_pipelined_response_that_waits_for_the_client_is_no_timeout(
    start_engine, start_gateway
):
    """The client reads no response for a while, so no engine is at fault."""

    async def behave(request):
        if not request.is_stream:
            await request.whole(b"x" * (6 << 20))
            return
        await request.head()
        await request.chunk(DONE)
        await request.end()

    engine = await start_engine(behave)
    front = await start_gateway(engine, between_chunks_timeout_s=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port, limit=1 << 12)
    writer.write(request() + request(stream=True))
    await asyncio.sleep(1.0)
    assert len(engine.requests) == 1
    answers = b""
    while not answers.endswith(b"0\r\n\r\n"):
        answers += await reader.read(1 << 20)
    assert len(engine.requests) == 2
    assert answers.count(DONE) == 1
    assert b'"error"' not in answers
    assert not front.gateway.state.endpoints.suspects
    writer.close()


@pytest.mark.parametrize("more", [b"\r\nzz\r\n", b"content-length: 5\r\n\r\n"])
async def test_malformed_head_request_is_refused_without_a_body(start_gateway, more):
    """Refused as any other, but for the body of the answer."""
    front = await start_gateway()
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = b"HEAD /v1/models HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
    writer.write(head + more)
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"\r\n\r\n")
    writer.close()
