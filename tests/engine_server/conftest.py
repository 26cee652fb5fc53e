"""A real engine process on a tiny model."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

DOCS = Path(__file__).parents[2] / "docs"
COMMAND = Path(sys.executable).with_name("penstock-engine")


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made with the product's own command: too short to speak well, long enough for words."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    subprocess.run(
        [COMMAND, "make-model", folder, "--docs", DOCS, "--steps", "12"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


@dataclass
class Engine:
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series."""
        from prometheus_client.parser import text_string_to_metric_families

        text = httpx.get(f"{self.url}/metrics").text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        raise AssertionError(f"no series {name} {labels}")

    def settle(self) -> None:
        """Until nothing runs or waits and every block is free."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            busy = [
                self.metric(name)
                for name in (
                    "vllm:num_requests_running", "vllm:num_requests_waiting",
                    "vllm:kv_cache_usage_perc",
                )
            ]  # fmt: skip
            if busy == [0, 0, 0]:
                return
            time.sleep(0.05)
        raise AssertionError("the engine did not come to rest")

    def lines(self) -> list[dict[str, object]]:
        """The request log."""
        return [json.loads(x) for x in self.log.read_text().splitlines() if x.startswith("{")]


def start(model_dir: Path, log: Path, *flags: str) -> Engine:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                COMMAND, "serve", model_dir, "--port", str(port), "--served-model-name", "tiny",
                "--max-model-len", "2048", "--kv-cache-memory-bytes", str(32 * 2**20),
                "--dtype", "float32", *flags,
            ],
            stdout=output, stderr=output, env=os.environ | {"PENSTOCK_CPU_LIMIT": "1"},
        )  # fmt: skip
    engine = Engine(f"http://127.0.0.1:{port}", process, log)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{engine.url}/ready").status_code == 200:
                return engine
        except httpx.TransportError:
            time.sleep(0.1)
    process.kill()
    process.wait()
    raise AssertionError(log.read_text())


def stop(engine: Engine) -> int:
    engine.process.send_signal(signal.SIGTERM)
    return engine.process.wait(30)


@pytest.fixture(scope="session")
def engine(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = start(model_dir, tmp_path_factory.mktemp("engine") / "log")
    yield made
    assert stop(made) == 0
