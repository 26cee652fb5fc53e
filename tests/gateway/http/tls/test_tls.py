"""TLS with clients: what they see, its limits, and a certificate that is replaced."""

import asyncio
import os
import socket
import ssl
from datetime import timedelta

import pytest
from tests.support.sources.certificates import AUTHORITY, CERTIFICATE, KEY, loopback_certificate

from penstock.gateway.http.protocol import LINGER_S

MODELS = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture
def folder(tmp_path):
    loopback_certificate(tmp_path)
    return tmp_path


@pytest.fixture
async def connect():
    """Connect with TLS to a gateway; folder: None for the bare connection."""
    writers = []

    async def connect(front, folder):
        context = None if folder is None else ssl.create_default_context(cafile=folder / AUTHORITY)
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port, ssl=context)
        writers.append(writer)
        return reader, writer

    yield connect
    for writer in writers:
        writer.transport.abort()


async def rest(reader):
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def test_requests_are_answered(start_engine, start_gateway, folder):
    front = await start_gateway(await start_engine(), tls=folder)
    assert front.url.startswith("https://")
    status, stream = await front.ask()
    assert status == 200
    assert stream.endswith(b"data: [DONE]\n\n")


async def test_versions_and_protocol_of_tls(start_gateway, connect, folder):
    front = await start_gateway(tls=folder)
    context = ssl.create_default_context(cafile=folder / AUTHORITY)
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection("127.0.0.1", front.port, ssl=context)
    made = writer.get_extra_info("ssl_object")
    assert (made.version(), made.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")
    writer.transport.abort()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    _, writer = await asyncio.open_connection("127.0.0.1", front.port, ssl=context)
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
    writer.transport.abort()


async def test_management_port_is_plain(start_gateway, folder):
    front = await start_gateway(tls=folder)
    async with front.client.get(front.management_url + "/healthz") as got:
        assert (got.url.scheme, got.status) == ("http", 200)


async def test_plain_http_is_closed_without_an_answer(start_gateway, until, folder, caplog):
    """The request is there before the connection is accepted: uvloop then reads it before the handshake."""
    front = await start_gateway(tls=folder)
    raw = socket.create_connection(("127.0.0.1", front.port))
    raw.sendall(MODELS)
    reader, writer = await asyncio.open_connection(sock=raw)
    answer = await rest(reader)
    assert b"HTTP" not in answer
    writer.close()
    await until(lambda: front.num_connections == 0)
    (record,) = (each for each in caplog.records if each.message == "connection refused")
    assert record.levelname == "WARNING"
    assert record.exc_info is None


async def test_silent_handshake_is_cut_off_after_the_time_for_the_head(
    start_gateway, connect, until, folder
):
    front = await start_gateway(tls=folder, head_timeout_s=0.2)
    reader, writer = await connect(front, None)
    writer.write(b"\x16\x03\x01")  # the first bytes of a handshake
    await until(lambda: front.num_connections == 1)
    assert await rest(reader) == b""
    await until(lambda: front.num_connections == 0)


async def test_time_for_the_head_includes_the_handshake(start_gateway, connect, until, folder):
    front = await start_gateway(tls=folder, head_timeout_s=1000.0)
    before_s = asyncio.get_running_loop().time()
    _, writer = await connect(front, None)
    await until(lambda: front.num_connections == 1)
    accepted_s = asyncio.get_running_loop().time()
    await asyncio.sleep(0.05)
    await writer.start_tls(
        ssl.create_default_context(cafile=folder / AUTHORITY), server_hostname="127.0.0.1"
    )
    await until(lambda: len(front.gateway_connections()) == 1)
    (connection,) = front.gateway_connections()
    assert before_s <= connection._head_started_s <= accepted_s


async def test_handshakes_count_as_connections_and_are_replaced(
    start_gateway, connect, until, folder
):
    front = await start_gateway(tls=folder, max_connections=2)
    silent = []
    for number in (1, 2):
        silent.append(await connect(front, None))
        await until(lambda number=number: front.num_connections == number)
    reader, writer = await connect(front, folder)
    writer.write(MODELS)
    assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
    assert await rest(silent[0][0]) == b""  # the oldest one
    assert not silent[1][0].at_eof()
    assert front.num_connections == 2


async def test_connection_beyond_the_limit_is_reset(
    start_engine, start_gateway, connect, until, folder
):
    async def hangs(request):
        await asyncio.sleep(3600)

    engine = await start_engine(hangs)
    front = await start_gateway(engine, tls=folder, max_connections=1)
    _, writer = await connect(front, folder)
    body = b'{"model": "chat"}'
    writer.write(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
    await until(lambda: engine.active == 1)
    with pytest.raises(ConnectionError):
        await connect(front, folder)
    assert engine.active == 1


async def test_response_before_a_large_body_is_delivered(start_gateway, connect, until, folder):
    """TLS has no half-close, so the gateway reads on until the client has sent all."""
    front = await start_gateway(tls=folder, max_body_bytes=1000)
    reader, writer = await connect(front, folder)
    body = b"x" * 3_000_000
    writer.write(HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    assert (await reader.readexactly(length)).endswith(b"}")
    (connection,) = front.gateway_connections()
    await asyncio.sleep(0.05)
    now_s = asyncio.get_running_loop().time()
    for later_s in (0.0, 1.0, 1.0 + LINGER_S + 0.1):
        assert not writer.is_closing()
        connection.check(now_s + later_s)
    assert await rest(reader) == b""
    await until(lambda: front.num_connections == 0)


async def test_client_that_does_not_answer_the_close_makes_room(
    start_gateway, connect, until, folder
):
    front = await start_gateway(tls=folder, max_connections=1)
    context = ssl.create_default_context(cafile=folder / AUTHORITY)

    def silent_client():
        raw = socket.create_connection(("127.0.0.1", front.port))
        made = context.wrap_socket(raw, server_hostname="127.0.0.1")
        made.sendall(MODELS.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        return made

    with await asyncio.to_thread(silent_client):
        await until(lambda: any(each._is_half_closed for each in front.gateway_connections()))
        reader, writer = await connect(front, folder)
        writer.write(MODELS)
        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        assert front.num_connections == 1


async def test_client_that_does_not_read_stops_the_engine(
    start_engine, start_gateway, connect, until, folder
):
    sent = 0

    async def endless(request):
        nonlocal sent
        await request.head()
        while True:
            await request.chunk(b'data: {"x": "%s"}\n\n' % (b"y" * 5000))
            sent += 5000

    engine = await start_engine(endless)
    front = await start_gateway(engine, tls=folder)
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", front.port))
    raw.setblocking(False)
    context = ssl.create_default_context(cafile=folder / AUTHORITY)
    _, writer = await asyncio.open_connection(sock=raw, ssl=context, server_hostname="127.0.0.1")
    writer.transport.pause_reading()
    body = b'{"model": "chat", "stream": true}'
    writer.write(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
    await until(lambda: engine.active == 1)
    (connection,) = front.gateway_connections()
    await until(lambda: connection._unread_since_s is not None)
    stopped_at = -1
    while stopped_at != sent:
        stopped_at = sent
        await asyncio.sleep(0.3)
    # Two pieces of 16 KiB and their encryption, besides what the kernel holds.
    assert connection.transport.get_write_buffer_size() < 40_000
    connection.check(connection._unread_since_s + 60.1)
    await engine.left.wait()
    writer.transport.abort()


def link(parent, target):
    """Let `parent/..data` lead to another folder, as the kubelet does it."""
    os.symlink(target, parent / "..new")
    os.replace(parent / "..new", parent / "..data")


@pytest.fixture
def secret(tmp_path, monkeypatch):
    """The volume of a Secret, in which `..data` leads to the files; they are looked at often."""
    monkeypatch.setattr("penstock.gateway.server.CERTIFICATE_CHECK_INTERVAL_S", 0.02)
    for version in ("v1", "v2", "v3"):
        (tmp_path / version).mkdir()
        loopback_certificate(tmp_path / version)
    link(tmp_path, "v1")
    for name in (CERTIFICATE, KEY):
        (tmp_path / name).symlink_to(f"..data/{name}")
    (tmp_path / AUTHORITY).symlink_to(f"v1/{AUTHORITY}")
    return tmp_path


async def changed(front, metric, before):
    """Wait until a metric has another value."""
    async with asyncio.timeout(10):
        while await front.metric(metric) == before:  # noqa: ASYNC110 - metrics have no events
            await asyncio.sleep(0.01)


async def serial_number(front, folder):
    """Serial number of the certificate that a new connection gets. folder: of the authority to trust."""
    context = ssl.create_default_context(cafile=folder / AUTHORITY)
    _, writer = await asyncio.open_connection("127.0.0.1", front.port, ssl=context)
    found = writer.get_extra_info("peercert")["serialNumber"]
    writer.transport.abort()
    return found


async def test_stream_goes_on_while_new_connections_get_the_new_certificate(
    start_engine, start_gateway, secret
):
    go_on = asyncio.Event()

    async def streams(request):
        await request.head()
        await request.chunk(b"data: {}\n\n")
        await go_on.wait()
        await request.chunk(b"data: [DONE]\n\n")
        await request.end()

    front = await start_gateway(await start_engine(streams), tls=secret)
    expiry = "penstock_gateway_tls_certificate_expiry_timestamp_seconds"
    first = await serial_number(front, secret / "v1")
    first_expiry_s = await front.metric(expiry)
    async with front.post() as got:
        assert await got.content.readany() == b"data: {}\n\n"
        loopback_certificate(secret / "v2", timedelta(hours=5))
        link(secret, "v2")
        await changed(front, expiry, first_expiry_s)
        assert await serial_number(front, secret / "v2") != first
        with pytest.raises(ssl.SSLCertVerificationError):
            await serial_number(front, secret / "v1")
        go_on.set()
        assert await got.content.read() == b"data: [DONE]\n\n"
    assert first_expiry_s - await front.metric(expiry) == pytest.approx(19 * 3600, abs=60)
    assert await front.metric("penstock_gateway_tls_certificate_reload_failures_total") == 0


async def test_broken_certificate_is_counted_once_and_the_old_one_stays(
    start_gateway, secret, caplog
):
    front = await start_gateway(tls=secret)
    first = await serial_number(front, secret / "v1")
    (secret / "v2" / KEY).write_bytes((secret / "v1" / KEY).read_bytes())
    link(secret, "v2")
    failures = "penstock_gateway_tls_certificate_reload_failures_total"
    await changed(front, failures, 0)
    await asyncio.sleep(0.1)  # five more checks
    assert await front.metric(failures) == 1
    assert await serial_number(front, secret / "v1") == first
    (record,) = (each for each in caplog.records if each.levelname == "ERROR")
    assert record.message == (
        f"the old TLS certificate is kept: the key in {secret / KEY} does not belong to the first "
        f"certificate in {secret / CERTIFICATE}"
    )
    expiry = "penstock_gateway_tls_certificate_expiry_timestamp_seconds"
    first_expiry_s = await front.metric(expiry)
    loopback_certificate(secret / "v3", timedelta(hours=5))
    link(secret, "v3")
    await changed(front, expiry, first_expiry_s)
    assert await serial_number(front, secret / "v3") != first
    assert await front.metric(failures) == 1
