"""The gateway as a process, with an unreachable API server."""

import asyncio
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
    return {"KUBECONFIG": str(path), "PENSTOCK_SERVICE_ACCOUNT_DIR": str(tmp_path / "none")}


async def start(environment, *options):
    penstock = Path(sys.executable).parent / "penstock"
    return await asyncio.create_subprocess_exec(
        penstock, "gateway", "run", "--host=127.0.0.1", *options, env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_live_but_not_ready_without_an_api_server_and_exits_with_0(environment, number):
    port = unused_port()
    process = await start(environment, f"--port={port}", "--drain-delay-s=0.1")
    url = f"http://127.0.0.1:{port}"
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

        process.send_signal(number)

        assert await process.wait() == 0
    said = (await process.stdout.read()).decode()
    assert "Traceback" not in said
    assert "draining" in said


async def test_missing_credentials_are_reported(environment, tmp_path):
    environment["KUBECONFIG"] = str(tmp_path / "none.yaml")
    process = await start(environment, "--port=0")
    said, _ = await process.communicate()
    assert process.returncode == 1
    assert "set KUBECONFIG" in said.decode()
