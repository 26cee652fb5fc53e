"""Fixtures: a tiny model, engine processes on real sockets, and engines inside the test process."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random
from typing import Any, Protocol

import httpx
import pytest
from aiohttp.test_utils import unused_port
from engine_process import start_engine

from penstock_engine.config import EngineConfig
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.make_model.make import make
from penstock_engine.serve_options import ServeOptions
from penstock_engine.server.adapters import AdapterRegistry
from penstock_engine.server.app import build_app
from penstock_engine.server.async_engine import AsyncEngine
from penstock_engine.server.metrics import EngineMetrics
from penstock_engine.server.state import ServerState
from penstock_engine.sizing import size
from penstock_engine.tokens import Tokenizer

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 90

# A client of a running engine, and the engine's process.
Launched = tuple[httpx.Client, ForkServerProcess]
Launch = Callable[..., Launched]

# Serves a fake runner in this process. Keyword arguments: fields of EngineConfig and ServeOptions.
ServeRunner = Callable[..., httpx.AsyncClient]


class FakeRunner(Protocol):
    """A runner of the tests: returns the results of a step, without a model."""

    def run(self, step: Step) -> dict[str, SequenceOutput]: ...


@dataclass
class SyncRunner:
    """Adapts a fake runner to the engine's interface. A step runs when the engine waits for it."""

    fake: FakeRunner
    depth = 1

    def launch(self, step: Step) -> "PendingStep":
        return PendingStep(self.fake, step)


@dataclass
class PendingStep:
    """A launched step that has not run yet."""

    fake: FakeRunner
    step: Step

    def wait(self) -> dict[str, SequenceOutput]:
        return self.fake.run(self.step)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3 model with a real tokenizer, trained for three steps: its answers are gibberish."""
    directory = tmp_path_factory.mktemp("models") / "soup"
    make(directory, [ROOT / "README.md", ROOT / "docs"], seconds=1, steps=3, seed=1)
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


@pytest.fixture(scope="session")
def client(launch: Launch) -> httpx.Client:
    """A client of an engine that all tests share, with a context of 2048 tokens."""
    client, _ = launch(
        "--max-model-len", "2048", "--max-num-seqs", "8", "--enable-prompt-tokens-details"
    )
    return client


@pytest.fixture
async def serve_runner(model_dir: Path) -> AsyncIterator[ServeRunner]:
    """Serves the runner that `load` returns, with a context of 64 tokens and 16 KV blocks."""
    engines: list[AsyncEngine] = []

    def start(
        load: Callable[[], FakeRunner],
        tracer: Any = None,
        tokenizer: Tokenizer | None = None,
        **flags: Any,
    ) -> httpx.AsyncClient:
        names = EngineConfig.__slots__
        changes = {name: value for name, value in flags.items() if name in names}
        config = EngineConfig(
            model_dir=model_dir, max_model_len=64, num_gpu_blocks_override=16, **changes
        )
        options = ServeOptions(
            served_model_names=["small"],
            **{name: value for name, value in flags.items() if name not in names},
        )
        sizing = size(config, device_name="cpu", memory_limit_bytes=1 << 40)
        metrics = EngineMetrics("small", config, sizing)
        scheduler = Scheduler(
            SchedulerConfig(
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                max_model_len=64,
                block_size=16,
                num_blocks=16,
                policy=config.scheduling_policy,
                max_num_queued_seqs=config.max_num_queued_reqs,
            )
        )
        engines.append(
            AsyncEngine(
                scheduler, SyncRunner(load()), metrics, frozenset(), lambda: SyncRunner(load())
            )
        )
        adapters = AdapterRegistry(
            engines[-1], config, metrics, targets={}, dtype="float32", root=None,
            taken_names=["small"], in_memory={},
        )  # fmt: skip
        state = ServerState(
            options, config, sizing, tokenizer or Tokenizer(model_dir), engines[-1], metrics, adapters,
            Random(0), None, tracer=tracer,
        )  # fmt: skip
        transport = httpx.ASGITransport(app=build_app(state))
        return httpx.AsyncClient(transport=transport, base_url="http://engine")

    yield start
    for engine in engines:
        await engine.close()
