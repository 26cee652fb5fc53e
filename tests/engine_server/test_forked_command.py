"""The command with which pods of scenarios start engines by fork: it behaves as the real one."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
from aiohttp.test_utils import unused_port
from tests.support.engine.forked_command import forked_engine_command

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Starts the command with words and variables."""
    with forked_engine_command() as folder:

        def run(*words: str, **variables: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [folder / "penstock-engine", *words],
                env=os.environ | variables, cwd=folder,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip

        yield run


@pytest.mark.parametrize("words", [["serve", "missing"], ["preflight", "--bad"]])
def test_errors_are_those_of_the_real_command(start: Start, words: list[str]) -> None:
    real = subprocess.run(
        [Path(sys.executable).with_name("penstock-engine"), *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    forked = start(*words)
    output, _ = forked.communicate(timeout=60)
    assert (forked.returncode, output) == (real.returncode, real.stdout)
    assert real.returncode != 0


@pytest.mark.parametrize(("signal", "code"), [("terminate", 0), ("kill", -9)])
def test_an_engine_ends_with_its_command(
    start: Start, model_dir: Path, signal: str, code: int
) -> None:
    port = unused_port()
    client = start("serve", str(model_dir), "--port", str(port), "--dtype", "float32")
    _wait(lambda: _answers(port))
    (engine,) = {
        connection.pid
        for connection in psutil.net_connections("tcp4")
        if connection.laddr.port == port and connection.status == psutil.CONN_LISTEN
    }
    getattr(client, signal)()
    client.communicate(timeout=60)
    assert client.returncode == code
    _wait(lambda: not psutil.pid_exists(engine))


def _answers(port: int) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
    return False


def _wait(done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 90
    while not done():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
