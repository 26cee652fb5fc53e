"""The gateway as a process, with an unreachable API server."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

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
