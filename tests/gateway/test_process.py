"""The gateway as a process, with an unreachable API server."""

import asyncio
import json
import os
import signal
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import unused_port
from tests.support.sources.certificates import AUTHORITY, CERTIFICATE, KEY, loopback_certificate

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {token: x}}]
"""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    source = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    return source | {
        "KUBECONFIG": str(path), "PENSTOCK_SERVICE_ACCOUNT_DIR": str(tmp_path / "none"),
    }  # fmt: skip


async def start(environment, *options):
    penstock = Path(sys.executable).parent / "penstock"
    return await asyncio.create_subprocess_exec(
        penstock, "gateway", "run", "--host=127.0.0.1", *options, env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_live_but_not_ready_without_an_api_server_and_exits_with_0(environment, number):
    port, management_port = unused_port(), unused_port()
    process = await start(
        environment, f"--port={port}", f"--management-port={management_port}",
        "--drain-delay-s=0.1",
    )  # fmt: skip
    url = f"http://127.0.0.1:{management_port}"
    async with aiohttp.ClientSession() as client, asyncio.timeout(60):
        while True:
            try:
                async with client.get(url + "/healthz") as got:
                    assert got.status == 200
                    assert (await got.json())["loop_lag_s"] >= 0
                break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.05)
        async with client.get(url + "/readyz") as got:
            assert got.status == 503
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"no HTTP\n{\r\n\r\n")
        await writer.drain()
        writer.close()

        process.send_signal(number)

        assert await process.wait() == 0
    said = (await process.stdout.read()).decode()
    lines = [json.loads(line) for line in said.splitlines()]
    assert not any("traceback" in line for line in lines)
    assert any("draining" in line["message"] for line in lines)
    refused = [line for line in lines if line["message"] == "connection refused"]
    assert [line["status"] for line in refused] == [400]
    assert refused[0].keys() == {"time", "level", "logger", "message", "status", "reason"}


async def test_missing_credentials_are_reported(environment, tmp_path):
    environment["KUBECONFIG"] = str(tmp_path / "none.yaml")
    process = await start(environment, "--port=0")
    said, _ = await process.communicate()
    assert process.returncode == 1
    assert "set KUBECONFIG" in said.decode()


async def connected(port, context=None):
    """A connection to the process, which may not listen yet."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", port, ssl=context)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)


async def test_tls_in_a_process(environment, tmp_path):
    """The process runs the event loop that `penstock gateway run` chooses."""
    loopback_certificate(tmp_path)
    port = unused_port()
    process = await start(
        environment, f"--port={port}", f"--management-port={unused_port()}", "--drain-delay-s=0",
        f"--tls-certificate={tmp_path / CERTIFICATE}", f"--tls-key={tmp_path / KEY}",
        "--head-timeout-s=1", "--max-body-bytes=1000",
    )  # fmt: skip
    async with asyncio.timeout(60):
        silent, silent_writer = await connected(port)
        plain, writer = await connected(port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"HTTP" not in await plain.read()
        writer.close()
        context = ssl.create_default_context(cafile=tmp_path / AUTHORITY)
        reader, writer = await connected(port, context)
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n"
        writer.write(head + b"x" * 3_000_000)
        await writer.drain()
        # It knows no tenants, so it lets nobody in, and reads no body
        assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")
        assert (await reader.read()).endswith(b"}")
        writer.close()
        assert await silent.read() == b""
        silent_writer.close()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    lines = [json.loads(line) for line in (await process.stdout.read()).splitlines()]
    assert not any("traceback" in line or line["level"] == "error" for line in lines)
    assert [line["reason"] for line in lines if line["message"] == "connection refused"] == [
        "TLS handshake failed: HTTP_REQUEST"
    ]


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (("--tls-key={key}",), 2, "--tls-certificate: TLS needs both files; set it too"),
        (("--tls-certificate={key}",), 2, "--tls-key: TLS needs both files; set it too"),
        (
            ("--tls-certificate={key}", "--tls-key={key}"),
            1,
            "{key} cannot be read: No such file or directory",
        ),
    ],
)
async def test_tls_files_that_cannot_be_used(environment, tmp_path, options, status, text):
    key = tmp_path / KEY
    process = await start(environment, *(each.format(key=key) for each in options))
    said, _ = await process.communicate()
    assert process.returncode == status
    assert text.format(key=key) in " ".join(said.decode().replace("│", "").split())
