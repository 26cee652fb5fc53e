"""Headers that are forwarded to engines."""

import asyncio
from dataclasses import replace

import pytest

from penstock.core.routing.pick import Endpoint

BODY = b'{"model": "chat"}'


async def send(front, *lines: bytes, body: bytes = BODY) -> bytes:
    """Send a request with these header lines. Returns the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    length = b"content-length: %d\r\n\r\n" % len(body)
    writer.write(head + b"".join(line + b"\r\n" for line in lines) + length + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.fixture
async def raw_engine(start_gateway, make_service):
    """A gateway, and the heads that its engine received, as bytes."""
    heads: list[bytes] = []

    async def connected(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    front = await start_gateway(synced=False)
    service = make_service()
    port = server.sockets[0].getsockname()[1]
    front.publish(replace(service, endpoints=(Endpoint("default/raw", f"127.0.0.1:{port}", "r1"),)))
    yield front, heads
    server.close()
    await server.wait_closed()


async def test_repeated_header_is_forwarded_each_time(raw_engine):
    front, heads = raw_engine
    assert b"200 OK" in await send(front, b"x-tag: one", b"x-tag: two")
    lines = [line for line in heads[0].split(b"\r\n") if line.lower().startswith(b"x-tag")]
    assert [line.partition(b": ")[2] for line in lines] == [b"one", b"two"]


async def test_utf_8_value_is_forwarded_unchanged(raw_engine):
    front, heads = raw_engine
    assert b"200 OK" in await send(front, "x-city: São Paulo".encode())
    assert "São Paulo".encode() in heads[0]


async def test_a_repeated_content_type_is_not_the_last_one(raw_engine):
    front, heads = raw_engine
    types = b"content-type: text/plain", b"content-type: application/json"
    assert b" 415 " in (await send(front, *types)).split(b"\r\n")[0]
    assert heads == []


@pytest.mark.parametrize("name", [b"x-penstock-tpot-s", b"X-Penstock-Anything"])
async def test_internal_headers_of_a_client_are_dropped(raw_engine, name):
    front, heads = raw_engine
    assert b"200 OK" in await send(front, name + b": 1")
    assert b"penstock" not in heads[0].lower()


async def test_request_id_with_a_colon_is_forwarded(raw_engine):
    front, heads = raw_engine
    answer = await send(front, b"x-request-id: root:1-5f")
    assert b"x-request-id: root:1-5f" in answer
    assert b"x-request-id: root:1-5f" in heads[0].lower()
