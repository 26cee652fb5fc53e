"""Limits of a connection: framing, pipelining, time limits and the number of connections."""

import asyncio
import contextlib
import json
import socket

import pytest

from penstock.gateway.http.protocol import SEND_BUFFER_BYTES

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
BODY = b'{"model": "chat"}'
SMUGGLED = HEAD + b"x-tenant: mallory\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Client:
    """A socket to the gateway, and the bytes received on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return int(head.split()[1]), await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        async with asyncio.timeout(20):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


@pytest.fixture
async def connect():
    clients: list[Client] = []

    async def connect(front) -> Client:
        clients.append(Client(*await asyncio.open_connection("127.0.0.1", front.port)))
        return clients[-1]

    yield connect
    for client in clients:
        client.writer.close()
        with contextlib.suppress(ConnectionError):
            await client.writer.wait_closed()


def sized(body: bytes, *lines: bytes) -> bytes:
    length = b"content-length: %d\r\n\r\n" % len(body)
    return HEAD + b"".join(line + b"\r\n" for line in lines) + length + body


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"TLS/1.0"])
async def test_upgrade_header_is_ignored_and_the_body_is_read(
    start_engine, start_gateway, connect, protocol
):
    engine = await start_engine()
    front = await start_gateway(engine)
    client = await connect(front)
    text = "x" * 300_000 + SMUGGLED.decode() + "x" * 300_000
    body = json.dumps({"model": "chat", "prompt": text}).encode()
    body += b" " * 100_000 + SMUGGLED + b" " * 100_000  # not JSON, but within its length
    upgrade = b"connection: Upgrade, HTTP2-Settings", b"upgrade: " + protocol
    request = sized(body, *upgrade)
    for start in range(0, len(request), 50_000):
        await client.send(request[start : start + 50_000])
        await asyncio.sleep(0.001)
    assert (await client.answer())[0] == 400
    assert engine.requests == []

    await client.send(sized(BODY, *upgrade))
    assert (await client.answer())[0] == 200
    assert len(engine.requests) == 1
    assert not {"upgrade", "http2-settings", "x-tenant"} & set(engine.requests[0].headers)


async def test_trailers_are_not_headers(start_engine, start_gateway, connect):
    engine = await start_engine()
    front = await start_gateway(engine)
    client = await connect(front)
    chunked = b"x-tenant: alice\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (
        len(BODY),
        BODY,
    )
    await client.send(HEAD + chunked + b"0\r\nx-tenant: mallory\r\nx-penstock-tpot-s: 9\r\n\r\n")
    assert (await client.answer())[0] == 200
    (request,) = engine.requests
    assert request.headers["x-tenant"] == "alice"
    assert "x-penstock-tpot-s" not in request.headers


async def test_trailers_end(start_engine, start_gateway, connect):
    front = await start_gateway(await start_engine())
    client = await connect(front)
    chunked = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
    await client.send(HEAD + chunked)
    answering = asyncio.create_task(client.answer())
    sent_bytes = 0
    while not answering.done():
        assert sent_bytes < 64 << 20
        await client.send(b"x: %s\r\n" % (b"y" * 1000) * 100)
        sent_bytes += 100_000
        await asyncio.sleep(0)
    assert (await answering)[0] == 431


async def test_pipelined_requests_are_answered_in_order(start_engine, start_gateway, connect):
    engine = await start_engine(lambda request: request.whole(request.body))
    front = await start_gateway(engine)
    client = await connect(front)
    bodies = [json.dumps({"model": "chat", "n": n}).encode() for n in range(20)]
    await client.send(b"".join(sized(body) for body in bodies))
    assert [await client.answer() for _ in bodies] == [(200, body) for body in bodies]
    assert len(engine.requests) == len(bodies)


@pytest.mark.parametrize("more", [1, 100_000, 3_000_000])
async def test_disconnect_after_a_pipelined_request_is_noticed(
    start_engine, start_gateway, connect, until, more
):
    async def hangs(request):
        await asyncio.sleep(3600)

    engine = await start_engine(hangs)
    front = await start_gateway(engine)
    client = await connect(front)
    await client.send(sized(BODY))
    await until(lambda: engine.active == 1)
    body = b'{"model": "chat", "x": "%s"}' % (b"y" * more)
    await client.send(sized(body))
    await asyncio.sleep(0.05)
    client.writer.close()
    await until(lambda: engine.active == 0)
    assert len(engine.requests) == 1


async def test_large_pipelined_request_is_not_buffered(start_engine, start_gateway, connect, until):
    go = asyncio.Event()

    async def late(request):
        await go.wait()
        await request.whole(b"{}")

    engine = await start_engine(late)
    front = await start_gateway(engine)
    client = await connect(front)
    await client.send(sized(BODY))
    await until(lambda: engine.active == 1)
    await client.send(sized(b'{"model": "chat", "x": "%s"}' % (b"y" * 300_000)))
    await asyncio.sleep(0.05)
    go.set()
    assert (await client.answer())[0] == 200
    assert await client.rest() == b""
    assert len(engine.requests) == 1


@pytest.mark.parametrize("sent", [b"", b"POST /v1/completions HT", HEAD])
async def test_head_has_a_time_limit(start_gateway, connect, sent):
    front = await start_gateway(head_timeout_s=0.1)
    client = await connect(front)
    await client.send(sent)
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 408") if sent else answer == b""


async def test_second_head_has_a_time_limit(start_engine, start_gateway, connect):
    front = await start_gateway(await start_engine(), head_timeout_s=0.2)
    client = await connect(front)
    await client.send(sized(BODY))
    assert (await client.answer())[0] == 200
    await asyncio.sleep(0.5)  # between requests it may be silent for longer
    await client.send(HEAD)
    assert (await client.rest()).startswith(b"HTTP/1.1 408")


async def test_connection_over_the_limit_replaces_an_idle_one(start_engine, start_gateway, connect):
    front = await start_gateway(await start_engine(), max_connections=3)
    first, second, third = [await connect(front) for _ in range(3)]
    await second.send(sized(BODY))
    assert (await second.answer())[0] == 200
    fourth = await connect(front)
    await fourth.send(sized(BODY))
    assert (await fourth.answer())[0] == 200
    assert await first.rest() == b""
    for kept in (second, third):
        await kept.send(sized(BODY))
        assert (await kept.answer())[0] == 200


async def test_connections_with_requests_are_not_replaced(
    start_engine, start_gateway, make_service, connect, until
):
    async def hangs(request):
        await asyncio.sleep(3600)

    engine = await start_engine(hangs)
    front = await start_gateway(synced=False, max_connections=2)
    front.publish(make_service(engine), make_service(engine, name="other", namespace="other"))
    for body in (BODY, b'{"model": "other"}'):
        await (await connect(front)).send(sized(body))
    await until(lambda: engine.active == 2)
    status, answer = await (await connect(front)).answer()
    assert (status, b"connections" in answer) == (503, True)
    assert engine.active == 2


async def test_http_1_0_client_gets_no_chunked_response(start_engine, start_gateway, connect):
    front = await start_gateway(await start_engine())
    client = await connect(front)
    body = b'{"model": "chat", "stream": true}'
    await client.send(sized(body).replace(b"HTTP/1.1", b"HTTP/1.0"))
    head, _, text = (await client.rest()).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert text.startswith(b"data: ")
    assert text.endswith(b"data: [DONE]\n\n")


async def test_response_that_the_client_does_not_read_is_dropped(
    start_engine, start_gateway, until
):
    engine = await start_engine(lambda request: request.whole(b'"%s"' % (b"x" * 7_000_000)))
    front = await start_gateway(engine, client_stall_timeout_s=0.3)
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", front.port))
    raw.sendall(sized(BODY))
    await until(lambda: engine.requests)
    assert front.num_connections == 1
    await until(lambda: front.num_connections == 0)
    raw.close()
    await front.idle()
    assert await front.metric("penstock_gateway_disconnects_total", phase="streaming") == 1


@pytest.mark.parametrize(
    "lines",
    [
        b"content-length: 17\r\ntransfer-encoding: chunked",
        b"transfer-encoding: chunked\r\ncontent-length: 17",
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity",
        b"content-length: 17\r\ncontent-length: 18",
    ],
)
async def test_ambiguous_body_length_is_refused(start_engine, start_gateway, connect, lines):
    engine = await start_engine()
    front = await start_gateway(engine)
    client = await connect(front)
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    await client.send(HEAD + lines + b"\r\n\r\n" + chunk + SMUGGLED)
    answer = await client.rest()
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501"))
    assert answer.count(b"HTTP/1.1") == 1
    assert engine.requests == []


async def test_body_in_tiny_chunks_is_refused(start_engine, start_gateway, connect):
    engine = await start_engine()
    front = await start_gateway(engine)
    client = await connect(front)
    body = b'{"model": "chat", "x": "%s"}' % (b"y" * 100_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    with contextlib.suppress(ConnectionError):
        await client.send(HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    answer = await client.rest()
    assert answer == b"" or b"too small" in answer
    assert engine.requests == []


@pytest.mark.parametrize("path", [b"/v1/completions", b"/nothing", b"/v1/models"])
async def test_response_before_the_end_of_the_body_closes_the_connection(
    start_gateway, connect, path
):
    front = await start_gateway()
    client = await connect(front)
    head = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n" % path
    await client.send(head + b"content-length: 1000\r\n\r\n" + SMUGGLED)
    answer = await client.rest()
    assert answer.count(b"HTTP/1.1 4") == 1


async def test_response_before_a_large_body_is_delivered(start_gateway, connect):
    """A reset of the connection would lose it."""
    front = await start_gateway(max_body_bytes=1000)
    client = await connect(front)
    body = b"x" * 3_000_000
    await client.send(HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body))
    await client.send(body)
    assert (await client.answer())[0] == 413
    assert await client.rest() == b""


async def test_kernel_buffers_little_of_a_response_that_is_not_read(start_gateway, connect, until):
    """Without a bound, Linux grows the buffer to 4 MiB for each client that does not read."""
    front = await start_gateway()
    await connect(front)
    await until(lambda: front.num_connections == 1)
    (connection,) = front.server.server_state.connections
    made = connection.transport.get_extra_info("socket")
    buffer_bytes = made.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert buffer_bytes == 2 * SEND_BUFFER_BYTES  # Linux doubles it


async def test_target_with_the_name_of_the_server(start_engine, start_gateway, connect):
    engine = await start_engine()
    front = await start_gateway(engine)
    client = await connect(front)
    head = b"POST http://host/v1/completions?a=b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    await client.send(head + b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY))
    assert (await client.rest()).startswith(b"HTTP/1.1 200 ")
    assert [request.path for request in engine.requests] == ["/v1/completions?a=b"]
