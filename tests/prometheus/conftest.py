"""A real Prometheus server that scrapes a real engine."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from aiohttp.test_utils import unused_port
from tests.support.tools import prometheus as binaries

from penstock.demo.model import MODEL_NAME, ensure_model
from penstock.demo.stage import poll_until

ROOT = Path(__file__).parents[2]
SCRAPE_EVERY = "1s"
START_TIMEOUT_S = 90
WAITING = 11

Start = Callable[..., "Prometheus"]


class Prometheus:
    """A running Prometheus. host: HOST:PORT. Targets have the labels that a PodMonitor sets."""

    def __init__(
        self, binary: Path, folder: Path, pods: Mapping[str, str], namespace: str, port: int
    ) -> None:
        self.host = f"127.0.0.1:{port}"
        self.url = f"http://{self.host}"
        targets = [
            {"targets": [address], "labels": {"namespace": namespace, "pod": pod}}
            for pod, address in pods.items()
        ]
        job = {
            "job_name": "engines",
            "scrape_interval": SCRAPE_EVERY,
            "scrape_timeout": SCRAPE_EVERY,
            "static_configs": targets,
        }
        config = folder / "prometheus.yml"
        config.write_text(json.dumps({"scrape_configs": [job]}))
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [binary, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
                 f"--web.listen-address={self.host}"],
                stdout=log, stderr=log,
            )  # fmt: skip

    def pause(self) -> None:
        """Stop the process, and wait until it has stopped: until then it answers."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    async def until(self, query: str) -> None:
        """Wait until the query returns a result."""

        async def holds() -> bool:
            async with httpx.AsyncClient(base_url=self.url) as client:
                answer = await client.get("/api/v1/query", params={"query": query})
            return bool(answer.json()["data"]["result"])

        await poll_until(holds, within_s=20, what=query)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline_s, log.read_text()
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)


@pytest.fixture
def port() -> int:
    """A port without a listener."""
    return unused_port()


@pytest.fixture(scope="session")
def start_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    started: list[Prometheus] = []
    binary = binaries.ensure("prometheus", print)  # a build takes longer than any test may

    def start(
        pods: Mapping[str, str], namespace: str = "default", port: int | None = None
    ) -> Prometheus:
        folder = tmp_path_factory.mktemp("prometheus")
        made = Prometheus(binary, folder, pods, namespace, port or unused_port())
        started.append(made)
        wait_for(f"{made.url}/-/ready", made.process, made.log)
        return made

    yield start
    for made in started:
        made.process.kill()
        made.process.wait()


@pytest.fixture(scope="session")
def prometheus(start_prometheus: Start, engine: str) -> Prometheus:
    """A Prometheus that scrapes the engine as the pod default/chat-b-1."""
    return start_prometheus({"chat-b-1": engine})


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of an engine that runs one request at a time."""
    model = ensure_model(ROOT / "docs") / MODEL_NAME
    log_path = tmp_path_factory.mktemp("engine") / "log"
    address = f"127.0.0.1:{unused_port()}"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("penstock-engine"), "serve", model,
             "--port", address.split(":")[1], "--served-model-name", "tiny",
             "--max-num-seqs", "1", "--max-model-len", "2048"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        wait_for(f"http://{address}/ready", process, log_path)
        yield address
    finally:
        process.kill()
        process.wait()


@pytest.fixture
async def waiting(engine: str) -> AsyncIterator[int]:
    """Number of requests that wait at the engine behind a running one during the test."""
    body = {"model": "tiny", "prompt": "a", "max_tokens": 2000, "ignore_eos": True}
    async with httpx.AsyncClient(base_url=f"http://{engine}", timeout=120) as client:

        async def ask_again_and_again() -> None:
            while True:
                await client.post("/v1/completions", json=body)

        asking = [asyncio.create_task(ask_again_and_again()) for _ in range(WAITING + 1)]

        async def has_metrics() -> bool:
            metrics = (await client.get("/metrics")).text
            return f'num_requests_waiting{{engine="0",model_name="tiny"}} {WAITING}.0' in metrics

        await poll_until(has_metrics, within_s=30, what=f"{WAITING} waiting requests")
        yield WAITING
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
