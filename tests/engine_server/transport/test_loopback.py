"""Servers of pods are reached at the loopback address too, as `kubectl port-forward` does."""

import asyncio
import socket

import pytest
import uvicorn

from penstock.gateway.http.servers import Server as GatewayServer
from penstock_engine.http.loopback import loopback_beside
from penstock_engine.server.listen import Server as EngineServer

# Stands in for a pod's address.
POD = "127.0.0.4"
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("10.244.1.7", "127.0.0.1"),
        ("fd00::7", "::1"),
        ("127.16.0.2", None),
        ("::1", None),
        ("0.0.0.0", None),
        ("::", None),
        ("localhost", None),
        ("", None),
    ],
)
def test_address_beside_that_of_a_pod(host, loopback):
    assert loopback_beside(host) == loopback


@pytest.fixture
def loopback_listener(monkeypatch):
    monkeypatch.setattr("penstock_engine.http.loopback.loopback_beside", lambda _: "127.0.0.1")


async def app(scope, receive, send):
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


def config(port=0):
    return uvicorn.Config(app, host=POD, port=port, lifespan="off", log_config=None)


async def ask(address, port):
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(REQUEST)
    answer = await reader.read()
    writer.close()
    return answer


async def until(check):
    async with asyncio.timeout(10):
        while not check():  # noqa: ASYNC110 - uvicorn has no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "make", [lambda: EngineServer(config(), lambda: None), lambda: GatewayServer(config())],
    ids=["engine", "gateway"],
)  # fmt: skip
async def test_both_addresses_answer_until_the_end(make, loopback_listener):
    server = make()
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started and len(server.servers) == 2)
    port = server.servers[0].sockets[0].getsockname()[1]
    for address in (POD, "127.0.0.1"):
        assert (await ask(address, port)).endswith(b"ok")
    server.should_exit = True
    await serving
    for address in (POD, "127.0.0.1"):
        with pytest.raises(ConnectionRefusedError):
            await ask(address, port)


async def test_an_address_that_is_taken_is_left_out(loopback_listener, caplog):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = GatewayServer(config(port))
        serving = asyncio.create_task(server.serve())
        await until(lambda: f"cannot reach port {port}" in caplog.text)
        assert (await ask(POD, port)).endswith(b"ok")
        server.should_exit = True
        await serving
