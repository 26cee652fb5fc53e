"""The operator's HTTP server answers probes whatever other clients do."""

import asyncio

import pytest

from penstock.clients.metrics.http_server import MAX_CONNECTIONS, serving
from penstock.controller.http.placements import Placements
from penstock.controller.http.recorder import Recorder
from penstock.controller.http.server import OperatorEndpoints

PROBE = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
# Addresses of clients: a whole network is loopback.
CLIENT, KUBELET = ("127.0.0.2", 0), ("127.0.0.3", 0)


async def connect(port, client):
    return await asyncio.open_connection("127.0.0.1", port, local_addr=client)


async def probe(port, client):
    reader, writer = await connect(port, client)
    writer.write(PROBE)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


async def test_probe_is_answered_while_a_client_opens_all_connections_it_can():
    async with OperatorEndpoints().serve("127.0.0.1", 0, Recorder(), Placements()) as port:
        opened = [await connect(port, CLIENT) for _ in range(2 * MAX_CONNECTIONS)]
        for client in (KUBELET, CLIENT):
            assert (await probe(port, client)).endswith(b"\r\n\r\nok")
        num_closed = 0
        for reader, writer in opened[: MAX_CONNECTIONS + MAX_CONNECTIONS // 2]:
            num_closed += await reader.read() == b""  # the oldest made way for the newest
            writer.close()
        assert num_closed == MAX_CONNECTIONS + MAX_CONNECTIONS // 2
        for _, writer in opened:
            writer.close()


async def test_open_requests_are_cut_off_at_the_end(monkeypatch):
    monkeypatch.setattr("penstock.clients.metrics.http_server.LAST_ANSWERS_S", 0.01)
    has_started = asyncio.Event()

    async def app(scope, receive, send):
        has_started.set()
        await asyncio.Event().wait()

    async with serving(app, "127.0.0.1", 0) as port:
        reader, writer = await connect(port, CLIENT)
        writer.write(PROBE)
        await has_started.wait()
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()


async def test_port_forward_reaches_the_server_of_a_pod(monkeypatch):
    """kubectl connects to the pod's loopback address, where 127.0.0.4 stands in for the pod's."""
    monkeypatch.setattr("penstock_engine.http.loopback.loopback_beside", lambda _: "127.0.0.1")
    async with OperatorEndpoints().serve("127.0.0.4", 0, Recorder(), Placements()) as port:
        assert (await probe(port, CLIENT)).endswith(b"\r\n\r\nok")
    with pytest.raises(ConnectionRefusedError):
        await connect(port, CLIENT)
