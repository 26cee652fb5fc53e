"""A closed client leaves no open connection, whatever its server does."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from penstock.clients.kubernetes.client import Kube, connect
from penstock.clients.kubernetes.resources import PODS
from penstock.clients.kubernetes.rest_client import SocketTracker
from penstock.local.pki import Authority

ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"
CLIENTS = 4


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """URL of a server that starts an answer, never ends it, and does not close connections."""
    Authority(tmp_path).issue("server", "server", addresses=("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=_serve, args=(listener, context, kept))
        serving.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        cluster = {"server": url, "certificate-authority": str(tmp_path / "ca.crt")}
        path = tmp_path / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "one",
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "clusters": [{"name": "one", "cluster": cluster}],
            "users": [{"name": "one", "user": {"token": "x"}}],
        }
        path.write_text(yaml.safe_dump(config))
        yield path
        serving.join()
    for each in kept:
        each.close()


def _serve(listener: socket.socket, context: ssl.SSLContext, kept: list[socket.socket]) -> None:
    for _ in range(2 * CLIENTS):
        made = context.wrap_socket(listener.accept()[0], server_side=True)
        made.recv(65536)
        made.sendall(ANSWER)
        kept.append(made)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """List of all sockets that REST clients create."""
    sockets: list[socket.socket] = []
    create = SocketTracker.create

    def noted(self: SocketTracker, address: object) -> socket.socket:
        sockets.append(create(self, address))
        return sockets[-1]

    monkeypatch.setattr(SocketTracker, "create", noted)
    return sockets


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_an_interrupted_request_is_closed(
    kubeconfig: Path, made: list[socket.socket], is_cancelled: bool
) -> None:
    begun = asyncio.Semaphore(0)

    async def watch(kube: Kube) -> None:
        async for _ in kube.stream("/watched", timeout_s=60):
            begun.release()

    async with await connect(kubeconfig) as kube:
        asked = [asyncio.create_task(kube.get(PODS, "a", "b")) for _ in range(CLIENTS)]
        asked += [asyncio.create_task(watch(kube)) for _ in range(CLIENTS)]
        async with asyncio.timeout(20):
            for _ in range(CLIENTS):
                await begun.acquire()
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        if is_cancelled:
            closing = asyncio.create_task(kube.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert [each for each in made if each.fileno() >= 0] == []
    assert len(made) == 2 * CLIENTS
    assert [each for each in made if each.fileno() >= 0] == []
