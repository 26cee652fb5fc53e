"""Fixtures: a tiny model, and engine processes that serve it on real sockets."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import httpx
import pytest
from aiohttp.test_utils import unused_port
from tests.support.engine.engine_process import start_engine
from tests.support.engine.tiny_model import make_tiny_model

START_TIMEOUT_S = 90

# A client of a running engine, and the engine's process.
Launched = tuple[httpx.Client, ForkServerProcess]
Launch = Callable[..., Launched]


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model: its answers are gibberish."""
    directory = tmp_path_factory.mktemp("models") / "soup"
    make_tiny_model(directory)
    return directory


@pytest.fixture(scope="session")
def launch(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """Starts `penstock-engine serve` with the given flags. All engines are killed at the end.

    seed: of the engine, so that requests without a seed sample the same tokens in every test run.
    """
    launched: list[Launched] = []

    def start(*flags: str, seed: int | None = 0, model: Path = model_dir) -> Launched:
        port = unused_port()
        seeding = [] if seed is None else ["--seed", str(seed)]
        log_path = tmp_path_factory.mktemp("engine") / "log"
        process = start_engine(
            [str(model), "--port", str(port), "--served-model-name", "soup", "--dtype", "float32",
             "--num-gpu-blocks-override", "400", *seeding, *flags],
            log_path,
        )  # fmt: skip
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        launched.append((client, process))
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            assert process.is_alive(), log_path.read_text()
            assert time.monotonic() < deadline_s, log_path.read_text()
            with suppress(httpx.TransportError):
                if client.get("/ready").status_code == 200:
                    return client, process
            time.sleep(0.05)

    yield start
    for client, process in launched:
        client.close()
        process.kill()
        process.join()
