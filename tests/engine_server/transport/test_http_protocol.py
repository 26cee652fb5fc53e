"""Limits on the connections of a server and on the time of their clients, over real sockets."""

import asyncio
import socket
from contextlib import suppress
from functools import partial

import pytest
import uvicorn

from penstock_engine.http.connections_by_address import ConnectionsByAddress
from penstock_engine.http.protocol import MAX_HEADER_LINES, BoundedProtocol

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
SLOW_REQUEST = REQUEST.replace(b"/", b"/slow", 1)
ENDLESS_REQUEST = REQUEST.replace(b"/", b"/endless", 1)
TIMEOUT_S = 1.0
LARGE_BYTES = 32 << 20  # more than the kernel buffers
MAX_CONNECTIONS = 4
# A second client: a whole network is loopback.
OTHER = "127.0.0.2"


class App:
    """Answers, at /slow after the time that a head may take, at /large and /endless with much."""

    def __init__(self):
        self.num_endless = 0
        self.has_ended = asyncio.Event()

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/slow":
            # A timer of the head that still ran would fire first, as it started earlier.
            await asyncio.sleep(TIMEOUT_S)
        if scope["path"] == "/endless":
            await self.stream(receive, send)
        else:
            body = bytes(LARGE_BYTES) if scope["path"] == "/large" else b"ok"
            headers = [(b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def stream(self, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        self.num_endless += 1
        disconnected = asyncio.ensure_future(receive())
        while not disconnected.done():
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
            await asyncio.sleep(0)
        self.has_ended.set()


@pytest.fixture
def app():
    return App()


@pytest.fixture
async def server(app):
    """A server that listens."""
    protocol = partial(
        BoundedProtocol,
        limit=ConnectionsByAddress(MAX_CONNECTIONS),
        client_stall_timeout_s=TIMEOUT_S,
        head_timeout_s=TIMEOUT_S,
    )
    config = uvicorn.Config(app, port=0, http=protocol, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield server
    server.should_exit = True
    await serving


@pytest.fixture
async def connect(server):
    """`await connect(address)` -> reader and writer of a connection of this client to the server."""
    port = server.servers[0].sockets[0].getsockname()[1]
    writers = []

    async def open_one(address="127.0.0.1"):
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.bind((address, 0))
        raw.connect(("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
        writers.append(writer)
        return reader, writer

    yield open_one
    for writer in writers:
        writer.close()


async def wait_for_end(reader):
    """Read to the end of a connection, however it ends."""
    async with asyncio.timeout(10):
        with suppress(ConnectionResetError):
            while await reader.read(1 << 20):
                pass


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
async def test_connection_without_a_head_is_closed(connect, sent):
    reader, writer = await connect()
    writer.write(sent)
    async with asyncio.timeout(10):
        assert await reader.read() == b""


@pytest.mark.parametrize(
    ("num_headers", "answer"), [(MAX_HEADER_LINES, b"200"), (MAX_HEADER_LINES + 1, b"400")]
)
async def test_number_of_headers_is_bounded(connect, num_headers, answer):
    reader, writer = await connect()
    head, end = REQUEST[:-2], REQUEST[-2:]
    writer.write(head + b"x:\r\n" * (num_headers - 1) + end)
    status = await reader.readuntil(b"\r\n")
    assert status.split()[1] == answer


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


async def test_body_that_does_not_end_after_the_answer_is_closed(connect):
    reader, writer = await connect()
    writer.write(REQUEST.replace(b"\r\n\r\n", b"\r\ncontent-length: 9\r\n\r\nbody"))
    await reader.readuntil(b"ok")
    async with asyncio.timeout(10):
        assert await reader.read() == b""


async def test_client_that_reads_nothing_of_a_stream_is_disconnected(connect, app):
    _, writer = await connect()
    writer.write(ENDLESS_REQUEST)
    async with asyncio.timeout(10):
        await app.has_ended.wait()


async def test_client_that_reads_nothing_of_a_whole_answer_is_disconnected(connect, server):
    _, writer = await connect()
    writer.write(REQUEST.replace(b"/", b"/large", 1))
    async with asyncio.timeout(10):
        while not server.server_state.connections:  # noqa: ASYNC110 - it has no events
            await asyncio.sleep(0.01)
        while server.server_state.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_client_that_reads_slowly_but_steadily_stays(server, connect):
    """The kernel takes no more bytes before much of what it holds was read, which may take longer."""
    listening = server.servers[0].sockets[0]
    listening.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20
    )  # more than is read in TIMEOUT_S
    reader, writer = await connect()
    writer.write(REQUEST.replace(b"/", b"/large", 1))
    for _ in range(25):
        await reader.readexactly(8192)
        await asyncio.sleep(TIMEOUT_S / 10)
    assert server.server_state.connections  # the kernel would send on what it holds of a closed one


async def test_new_connection_takes_the_place_of_the_clients_oldest_idle_one(connect):
    idle = [await connect() for _ in range(MAX_CONNECTIONS // 2)]
    readers = [reader for reader, _ in idle]
    for reader, writer in idle:
        writer.write(REQUEST)
        await reader.readuntil(b"ok")
    reader, writer = await connect()
    writer.write(REQUEST)
    await reader.readuntil(b"ok")
    await wait_for_end(readers[0])
    idle[1][1].write(REQUEST)
    await readers[1].readuntil(b"ok")


async def start_large(server, reader, writer):
    """Ask for a large answer, and wait until it is complete for the application, and not sent."""
    writer.write(REQUEST.replace(b"/", b"/large", 1))
    await reader.readuntil(b"\r\n\r\n")
    address = writer.get_extra_info("sockname")
    (connection,) = (each for each in server.server_state.connections if each.client == address)
    while connection.is_answering:  # noqa: ASYNC110 - it has no events
        await asyncio.sleep(0.01)
    assert connection.flow.write_paused


async def test_answer_that_is_being_sent_is_not_cut_for_a_new_connection(server, connect):
    (large, to_large), (idle, _) = [await connect() for _ in range(MAX_CONNECTIONS // 2)]
    await start_large(server, large, to_large)
    reader, writer = await connect()
    await wait_for_end(idle)
    writer.write(REQUEST)  # at once: reading the large answer may take longer than a head may
    await reader.readuntil(b"ok")
    assert len(await large.readexactly(LARGE_BYTES)) == LARGE_BYTES


async def test_client_whose_answers_are_all_being_sent_opens_no_further_connection(server, connect):
    opened = [await connect() for _ in range(MAX_CONNECTIONS // 2)]
    for reader, writer in opened:
        await start_large(server, reader, writer)
    await wait_for_end((await connect())[0])
    assert len(server.server_state.connections) == MAX_CONNECTIONS // 2


async def test_new_address_takes_the_place_of_an_unread_answer_if_there_is_no_other(
    server, connect
):
    """Clients that do not read keep no probe out."""
    (first, to_first), (idle, _), *others = [
        await connect(f"127.0.0.{number}") for number in (1, 1, 2, 3)
    ]
    for reader, writer in ((first, to_first), *others):
        await start_large(server, reader, writer)
    for address, replaced in (("127.0.0.4", idle), ("127.0.0.5", first)):
        reader, writer = await connect(address)
        await wait_for_end(replaced)
        await start_large(server, reader, writer)


async def test_client_with_open_requests_leaves_connections_to_others(connect, app):
    busy = [await connect() for _ in range(MAX_CONNECTIONS // 2)]
    for reader, writer in busy:
        writer.write(ENDLESS_REQUEST)
        await reader.readuntil(b"\r\n\r\n")
    await wait_for_end((await connect())[0])
    assert app.num_endless == MAX_CONNECTIONS // 2
    reader, writer = await connect(OTHER)
    writer.write(REQUEST)
    await reader.readuntil(b"ok")


async def test_new_address_takes_the_place_of_an_idle_connection_when_all_are_taken(connect):
    first, *others = [await connect(f"127.0.0.{number}") for number in (1, 1, 2, 3)]
    for reader, writer in (first, *others):
        writer.write(REQUEST)
        await reader.readuntil(b"ok")
    reader, writer = await connect("127.0.0.4")
    writer.write(REQUEST)
    await reader.readuntil(b"ok")
    await wait_for_end(first[0])
    for reader, writer in others:
        writer.write(REQUEST)
        await reader.readuntil(b"ok")


async def test_connections_with_requests_are_not_replaced_by_those_of_a_new_address(connect):
    busy = [await connect(f"127.0.0.{number}") for number in (1, 1, 2, 3)]
    for reader, writer in busy:
        writer.write(ENDLESS_REQUEST)
        await reader.readuntil(b"\r\n\r\n")
    await wait_for_end((await connect("127.0.0.4"))[0])
    for reader, _ in busy:
        assert await reader.read(1)
