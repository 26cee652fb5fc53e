"""Connections of slow clients, checked at times that the test sets."""

import asyncio
import json
import socket

import pytest

from penstock.gateway.http.protocol import LINGER_S
from penstock.gateway.limits.connection_limit import Replaceable

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
BODY = b'{"model": "chat"}'
REQUEST = HEAD + b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY)
# Longer than any test, so that only a check with the test's own clock ends a connection.
LONG = {"head_timeout_s": 1000.0, "client_stall_timeout_s": 1000.0}


@pytest.fixture(autouse=True)
def no_periodic_checks(monkeypatch):
    """Make the gateway check its connections once and not again before the test is over."""
    monkeypatch.setattr("penstock.gateway.server.MAX_CHECK_INTERVAL_S", 1000.0)


class Client:
    """A socket with small buffers, and the gateway's end of it."""

    def __init__(self, front):
        self.raw = socket.socket()
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.raw.connect(("127.0.0.1", front.port))
        self.raw.setblocking(False)
        self._front = front

    async def send(self, data):
        await asyncio.get_running_loop().sock_sendall(self.raw, data)

    async def rest(self):
        found = b""
        async with asyncio.timeout(10):
            try:
                while chunk := await asyncio.get_running_loop().sock_recv(self.raw, 1 << 20):
                    found += chunk
            except ConnectionError:
                return found + b" and a reset"
        return found

    @property
    def connection(self):
        (only,) = self._front.server.server_state.connections
        return only


@pytest.fixture
async def connect(until):
    clients = []

    async def connect(front):
        clients.append(Client(front))
        await until(lambda: front.num_connections == 1)
        return clients[-1]

    yield connect
    for client in clients:
        client.raw.close()


async def settle():
    await asyncio.sleep(0.05)


async def test_incomplete_head_is_a_408_after_the_time_limit(start_gateway, connect, until):
    front = await start_gateway(**LONG)
    client = await connect(front)
    connection = client.connection
    started_s = connection._head_started_s = 4000.0
    await client.send(HEAD)
    await until(lambda: connection.conn.trailing_data[0])
    assert (
        connection._head_started_s == started_s
    )  # when the connection was opened, not when bytes arrived
    connection.check(started_s + 1000.0)
    assert not connection.transport.is_closing()
    connection.check(started_s + 1000.1)
    assert connection.transport.is_closing()
    response = await client.rest()
    assert response.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    error = json.loads(response.partition(b"\r\n\r\n")[2])["error"]
    assert error["message"] == "the head was not complete after 1000 s"
    assert (error["code"], error["type"]) == (408, "invalid_request_error")


async def test_connection_without_a_head_is_closed_without_a_response(start_gateway, connect):
    front = await start_gateway(**LONG)
    client = await connect(front)
    connection = client.connection
    started_s = connection._head_started_s = 4000.0
    connection.check(started_s + 1000.0)
    assert not connection.transport.is_closing()
    connection.check(started_s + 1000.1)
    assert await client.rest() == b""


async def test_connection_may_be_idle_between_requests(start_engine, start_gateway, connect, until):
    front = await start_gateway(await start_engine(), **LONG)
    client = await connect(front)
    connection, now_s = client.connection, asyncio.get_running_loop().time()
    for _ in range(2):
        await client.send(REQUEST)
        await until(lambda: connection._head_started_s is None)
        await front.idle()
        await settle()
        connection.check(now_s + 1e6)
        assert not connection.transport.is_closing()
    await client.send(HEAD)
    await until(lambda: connection._head_started_s is not None)
    assert connection._head_started_s >= now_s
    connection.check(now_s + 1e6)
    assert (await client.rest()).endswith(b"}")


async def test_time_limit_of_a_head_does_not_run_during_a_request(
    start_engine, start_gateway, connect, until
):
    hold = asyncio.Event()

    async def late(request):
        await hold.wait()
        await request.whole(b"{}")

    engine = await start_engine(late)
    front = await start_gateway(engine, **LONG)
    client = await connect(front)
    connection = client.connection
    await client.send(REQUEST + HEAD)  # followed by a half of the next request
    await engine.arrived.wait()
    await settle()
    assert connection._head_started_s is None
    assert connection not in connection._limit._replaceable[Replaceable.IDLE]
    hold.set()
    await until(lambda: connection._head_started_s is not None)
    assert connection in connection._limit._replaceable[Replaceable.IDLE]


async def test_client_that_sends_after_its_response_is_disconnected_after_the_linger_time(
    start_gateway, connect, until
):
    front = await start_gateway(max_body_bytes=10, **LONG)
    client = await connect(front)
    connection, now_s = client.connection, 5000.0
    await client.send(HEAD + b"content-length: 1000\r\n\r\n")
    await until(connection.transport.is_closing)
    await until(lambda: not connection.transport.get_write_buffer_size())
    for at_s in (now_s, now_s + LINGER_S / 2, now_s + LINGER_S):
        connection.check(at_s)
        await settle()
        assert front.num_connections == 1
    connection.check(now_s + LINGER_S + 0.1)
    await until(lambda: front.num_connections == 0)
    assert (await client.rest()).startswith(b"HTTP/1.1 413")


async def test_client_that_goes_on_sending_after_its_response_gets_it(
    start_gateway, connect, until
):
    """It reads only when it has sent its whole body. A reset before that would lose the response."""
    front = await start_gateway(max_body_bytes=10, request_timeout_s=30.0, **LONG)
    client = await connect(front)
    connection, now_s = client.connection, 5000.0
    await client.send(HEAD + b"content-length: 1000\r\n\r\n")
    await until(connection.transport.is_closing)
    await until(lambda: not connection.transport.get_write_buffer_size())
    for at_s in (now_s, now_s + 15.0, now_s + 30.0):
        await client.send(b"x")
        await until(lambda: connection._has_dropped)
        connection.check(at_s)
        await settle()
        assert front.num_connections == 1
    await client.send(b"x")
    connection.check(now_s + 30.1)
    await until(lambda: front.num_connections == 0)
    assert (await client.rest()).startswith(b"HTTP/1.1 413")


async def large(request):
    await request.whole(b'"%s"' % (b"x" * 7_000_000))


async def endless(request):
    await request.head()
    while True:
        await request.chunk(b"data: " + b"x" * 2_000_000 + b"\n\n")


@pytest.fixture(params=[large, endless])
async def stalled(request, start_engine, start_gateway, connect, until):
    """A gateway, a client that reads nothing of a large response, and the connection with its rest."""
    front = await start_gateway(await start_engine(request.param), **LONG)
    client = await connect(front)
    connection = client.connection
    await client.send(REQUEST)
    await until(lambda: connection.flow.write_paused)
    await settle()
    return front, client, connection


async def test_client_that_reads_nothing_is_disconnected_after_the_stall_timeout(stalled, until):
    front, _, connection = stalled
    since_s = connection._unread_since_s
    connection.check(since_s + 999.9)
    assert not connection.transport.is_closing()
    connection.check(since_s + 1000.1)
    assert connection.transport.is_closing()
    await until(lambda: front.num_connections == 0)


async def test_reading_a_piece_restarts_the_stall_timeout(stalled, until):
    _, client, connection = stalled
    connection._unread_since_s = before_s = connection._unread_since_s - 500.0
    while connection._unread_since_s in (None, before_s):
        await asyncio.get_running_loop().sock_recv(client.raw, 65536)
        await asyncio.sleep(0.001)
    connection.check(before_s + 1000.1)
    assert not connection.transport.is_closing()
    connection.check(connection._unread_since_s + 1000.1)
    assert connection.transport.is_closing()


async def test_client_that_has_read_everything_is_not_stalled(
    start_engine, start_gateway, connect, until
):
    front = await start_gateway(await start_engine(large), **LONG)
    client = await connect(front)
    connection = client.connection
    await client.send(REQUEST)
    async with asyncio.timeout(10):
        received = 0
        while received < 7_000_000:
            received += len(await asyncio.get_running_loop().sock_recv(client.raw, 1 << 20))
    await front.idle()
    connection.check(asyncio.get_running_loop().time() + 1e6)
    assert not connection.transport.is_closing()


async def test_bytes_of_a_refused_client_are_read(start_gateway, connect, until):
    """Closing a connection with unread bytes would reset it, and the client could lose the response."""
    front = await start_gateway(**LONG)
    client = await connect(front)
    await client.send(b"hello\r\n\r\n")
    assert (await client.rest()).startswith(b"HTTP/1.1 400 Bad Request")
    await client.send(b"and more")
    await settle()
    assert front.num_connections == 1
    client.raw.close()
    await until(lambda: front.num_connections == 0)


async def test_idle_connection_is_not_stalled(start_engine, start_gateway, connect, until):
    front = await start_gateway(await start_engine(), **LONG)
    client = await connect(front)
    connection = client.connection
    await client.send(REQUEST)
    await until(lambda: connection._head_started_s is None)
    await front.idle()
    for at_s in (5000.0, 1e6, 2e6):
        connection.check(at_s)
        assert not connection.transport.is_closing()


async def test_limit_of_pipelined_bytes_is_per_request(start_engine, start_gateway, connect, until):
    """Each request takes half of the limit, and is answered before the next one is sent."""
    go = asyncio.Semaphore(0)

    async def late(request):
        await go.acquire()
        await request.whole(b"{}")

    engine = await start_engine(late)
    front = await start_gateway(engine, max_header_bytes=20_000)
    client = await connect(front)
    connection = client.connection
    body = b'{"model": "chat", "x": "%s"}' % (b"y" * 10_000)
    request = HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body)
    await client.send(REQUEST)
    for number in range(1, 5):
        await until(lambda number=number: len(engine.requests) == number)
        await client.send(request)
        await until(lambda: len(connection.conn.trailing_data[0]) == len(request))
        go.release()
    go.release()
    await until(lambda: len(engine.requests) == 5)
    await front.idle()
    assert front.num_connections == 1


@pytest.mark.parametrize("more", [0, 1])
async def test_pipelined_bytes_are_bounded(start_engine, start_gateway, connect, until, more):
    go = asyncio.Event()

    async def late(request):
        await go.wait()
        await request.whole(b"{}")

    engine = await start_engine(late)
    front = await start_gateway(engine, max_header_bytes=20_000)
    client = await connect(front)
    await client.send(REQUEST)
    await engine.arrived.wait()
    begin, end = b'{"model": "chat", "x": "', b'"}'
    head = HEAD + b"content-length: %05d\r\n\r\n"
    padding = b"y" * (20_000 + more - len(head % 1) - len(begin + end))
    body = begin + padding + end
    await client.send(head % len(body) + body)
    connection = client.connection
    await until(lambda: connection._is_dropping or len(connection.conn.trailing_data[0]) > 19_999)
    assert connection._is_dropping == bool(more)
    assert more or len(connection.conn.trailing_data[0]) == 20_000
    go.set()
    if more:  # the client has to send it on a new connection
        assert (await client.rest()).count(b"HTTP/1.1 200") == 1
    else:
        await until(lambda: len(engine.requests) == 2)
        await front.idle()
