"""Responses that clients do not read: connections and memory stay counted until they are sent."""

import asyncio
import gc
import socket
import weakref

import aiohttp
import pytest

from penstock.gateway.http.response_pieces import RESPONSE_PIECE_BYTES

BODY = b'{"model": "chat"}'
REQUEST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n%scontent-length: %d\r\n\r\n%s"
KEPT = REQUEST % (b"", len(BODY), BODY)
CLOSED = REQUEST % (b"connection: close\r\n", len(BODY), BODY)
STREAM = b'{"model": "chat", "stream": true}'
STREAMED = REQUEST % (b"", len(STREAM), STREAM)
# More than the kernel's buffers hold of a response, and odd, so that the last piece is a short one.
LARGE = b'"%s"' % (b"x" * 2_000_001)


class SilentClient:
    """A socket with a small buffer that reads only when it is told to."""

    def __init__(self, port):
        self.raw = socket.socket()
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.raw.connect(("127.0.0.1", port))
        self.raw.setblocking(False)

    async def send(self, data):
        await asyncio.get_running_loop().sock_sendall(self.raw, data)

    async def rest(self):
        """All bytes until the gateway closes the connection."""
        found = bytearray()
        async with asyncio.timeout(10):
            while chunk := await asyncio.get_running_loop().sock_recv(self.raw, 1 << 20):
                found += chunk
        return bytes(found)


@pytest.fixture
async def connect():
    """`connect(port)`: a client that reads nothing."""
    clients = []

    def connect(port):
        clients.append(SilentClient(port))
        return clients[-1]

    yield connect
    for client in clients:
        client.raw.close()


async def large(request):
    await request.whole(LARGE)


def num_blocked(front):
    """Number of connections that wait for their client to read."""
    return sum(each.flow.write_paused for each in front.server.server_state.connections)


async def until_stuck(front, number):
    """Wait until so many connections are blocked, and their clients' kernels take nothing more."""
    before = None
    async with asyncio.timeout(10):
        while (now := unsent(front)) != before or num_blocked(front) != number:
            before = now
            await asyncio.sleep(0.3)


def unsent(front):
    """Bytes of responses that are not sent, and of requests that are not processed, by connection."""
    return {
        each: (each.transport.get_write_buffer_size(), len(each.conn.trailing_data[0]))
        for each in front.server.server_state.connections
    }


@pytest.mark.parametrize("request_bytes", [KEPT, CLOSED])
async def test_unread_responses_count_for_their_service(
    start_engine, start_gateway, make_service, connect, until, request_bytes
):
    front = await start_gateway(synced=False, max_connections=8)
    other = make_service(await start_engine(), name="other")
    front.publish(make_service(await start_engine(large)), other)
    for _ in range(5):
        await connect(front.port).send(request_bytes)
    await until(lambda: num_blocked(front) == 3)  # the service's share of the connections
    assert front.gateway.state.open_requests.count("default/chat") == 3
    assert (await front.ask(model="other", stream=False))[0] == 200
    labels = {"service": "default/chat", "reason": "connections"}
    assert await front.metric("penstock_gateway_rejections_total", **labels) == 2


async def endless(request):
    await request.head()
    while True:
        await request.chunk(b"data: " + b"x" * 60_000 + b"\n\n")


async def test_unread_streams_count_for_their_service_until_their_cut_is_over(
    start_engine, start_gateway, connect, until, monkeypatch
):
    """A cut waits for the client to take the last event."""
    monkeypatch.setattr("penstock.gateway.http.client.LAST_EVENT_TIMEOUT_S", 1000.0)
    front = await start_gateway(await start_engine(endless), max_connections=8, total_timeout_s=0.5)
    clients = [connect(front.port) for _ in range(3)]  # the service's share of the connections
    for client in clients:
        await client.send(STREAMED)
    await until(lambda: num_blocked(front) == 3)
    await until(lambda: not front.gateway.state.cancel_scopes)
    assert await front.metric("penstock_gateway_streams_cut_total", cause="client") == 3
    assert front.gateway.state.limits.connections.held == 3
    assert (await front.ask(stream=False))[0] == 503
    for client in clients:
        client.raw.close()
    await until(lambda: front.gateway.state.limits.connections.held == 0)


async def test_unread_responses_after_rubbish_count(start_engine, start_gateway, connect, until):
    """Too many pipelined bytes half-close the connection after the response."""
    front = await start_gateway(await start_engine(large), max_connections=8)
    stats = front.gateway.state.stats.get("default/chat")
    for number in range(1, 21):
        await connect(front.port).send(KEPT + b"x" * 60_000)
        await until(lambda number=number: stats.arrivals == number)
        await until(lambda number=number: num_blocked(front) == min(number, 3))
        await until(lambda: front.num_connections <= 8)
    async with front.client.get(front.url + "/v1/models") as got:
        assert got.status == 200


PIPELINED = b"GET %s HTTP/1.1\r\nhost: x\r\n\r\n"


UNKNOWN = b'{"model": "unknown"}'


@pytest.mark.parametrize(
    "request_bytes", [PIPELINED % b"/v1/models", REQUEST % (b"", len(UNKNOWN), UNKNOWN)]
)
async def test_unread_responses_of_no_service_are_replaced(
    start_engine, start_gateway, connect, until, request_bytes, monkeypatch
):
    """Those that count for a service are not."""
    monkeypatch.setattr("penstock.gateway.http.protocol.SEND_BUFFER_BYTES", 4096)
    front = await start_gateway(await start_engine(large), max_connections=8)
    for number in range(3):
        await connect(front.port).send(KEPT)
        await until(lambda number=number: num_blocked(front) == number + 1)
    counted = set(front.server.server_state.connections)
    for number in range(3, 8):
        await connect(front.port).send(request_bytes * 200)
        await until(lambda number=number: num_blocked(front) == number + 1)
    await until_stuck(front, 8)
    for _ in range(3):
        async with (
            aiohttp.ClientSession() as session,
            session.get(front.url + "/v1/models") as got,
        ):
            assert got.status == 200
    assert num_blocked(front) == 7
    assert counted < set(front.server.server_state.connections)


async def test_unread_scrapes_leave_the_management_port_to_probes(
    start_gateway, connect, until, monkeypatch
):
    monkeypatch.setattr("penstock.gateway.http.servers.MAX_MANAGEMENT_CONNECTIONS", 4)
    monkeypatch.setattr("penstock.clients.metrics.page.MAX_AGE_S", 1000.0)
    front = await start_gateway()
    connections = front.management.server_state.connections
    for _ in range(4):
        await connect(front.management.port).send(PIPELINED % b"/metrics" * 100)
    await until(lambda: sum(each.flow.write_paused for each in connections) == 4)
    for path in ("/healthz", "/readyz", "/penstock/feed"):
        async with front.client.get(front.management_url + path) as got:
            assert got.status == 200
    assert len(connections) == 4


async def test_response_is_held_until_it_is_read(start_engine, start_gateway, connect, until):
    front = await start_gateway(await start_engine(large))
    state = front.gateway.state
    clients = [connect(front.port) for _ in range(3)]
    for client in clients:
        await client.send(CLOSED)
    await until(lambda: num_blocked(front) == 3)
    assert state.upstream.held_bytes == 3 * len(LARGE)
    for connection in front.server.server_state.connections:
        assert connection.transport.get_write_buffer_size() <= RESPONSE_PIECE_BYTES
    for number, client in enumerate(clients, start=1):
        assert (await client.rest()).partition(b"\r\n\r\n")[2] == LARGE
        await until(lambda n=number: state.upstream.held_bytes == (3 - n) * len(LARGE))
    await front.idle()


async def test_engine_is_free_while_the_client_reads(start_engine, start_gateway, connect, until):
    engine = await start_engine(large)
    front = await start_gateway(engine)
    await connect(front.port).send(KEPT)
    await until(lambda: num_blocked(front) == 1)
    assert front.gateway.state.engines.tokens == {}
    stats = front.gateway.state.stats.get("default/chat")
    assert len(stats.in_flight) == 0


async def test_client_that_leaves_frees_its_response(start_engine, start_gateway, connect, until):
    front = await start_gateway(await start_engine(large))
    client = connect(front.port)
    await client.send(KEPT)
    await until(lambda: num_blocked(front) == 1)
    client.raw.close()
    await front.idle()
    assert front.gateway.state.upstream.held_bytes == 0
    assert await front.metric("penstock_gateway_disconnects_total", phase="streaming") == 1


async def test_connection_that_is_lost_while_a_response_is_unread_is_freed(
    start_engine, start_gateway, connect, until
):
    """The task of its request ends after it."""
    front = await start_gateway(await start_engine(large))
    client = connect(front.port)
    await client.send(KEPT)
    await until(lambda: num_blocked(front) == 1)
    connection = weakref.ref(next(iter(front.server.server_state.connections)))
    client.raw.close()
    await front.idle()
    await until(lambda: not front.server.server_state.tasks)
    gc.collect()
    assert connection() is None


async def test_total_time_limit_covers_the_client_that_reads(
    start_engine, start_gateway, connect, until
):
    engine = await start_engine(large)
    front = await start_gateway(engine, total_timeout_s=0.3)
    await connect(front.port).send(KEPT)
    await until(lambda: num_blocked(front) == 1)
    await front.idle()
    assert await front.metric("penstock_gateway_streams_cut_total", cause="client") == 1
    assert not front.gateway.state.endpoints.suspects
