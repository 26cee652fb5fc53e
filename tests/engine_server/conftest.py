"""Fixtures: a tiny model, engine processes on real sockets, and engines inside the test process."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

import httpx
import pytest
from tests.engine_server import launched_engine

from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.machine.device import DeviceMemory
from penstock_engine.memory.plan import plan_memory
from penstock_engine.options.config import EngineConfig
from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.server.adapters.registry import AdapterRegistry
from penstock_engine.server.app import build_app
from penstock_engine.server.async_engine import AsyncEngine
from penstock_engine.server.configs import scheduler_config
from penstock_engine.server.handlers.state import ServerState
from penstock_engine.server.metrics.engine_metrics import EngineMetrics
from penstock_engine.text.tokens import Tokenizer

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


model_dir = launched_engine.model_dir
launch = launched_engine.launch


@pytest.fixture
def folder(model_dir: Path, tmp_path: Path) -> Path:
    """A copy of the model that a test may damage."""
    copy = tmp_path / "model"
    copy.mkdir()
    for file in model_dir.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


@pytest.fixture(scope="session")
def client(launch: launched_engine.Launch) -> httpx.Client:
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
        memory_plan = plan_memory(config, device_name="cpu", memory=DeviceMemory(1 << 40))
        metrics = EngineMetrics("small", config, memory_plan)
        scheduler = Scheduler(scheduler_config(config, memory_plan))
        engines.append(
            AsyncEngine(
                scheduler, SyncRunner(load()), metrics, frozenset(), lambda: SyncRunner(load())
            )
        )
        adapters = AdapterRegistry(
            engines[-1], config, metrics, targets={}, dtype="float32",
            taken_names=["small"], in_memory={},
        )  # fmt: skip
        state = ServerState(
            options, config, memory_plan, tokenizer or Tokenizer(model_dir), engines[-1], metrics, adapters,
            Random(0), None, tracer=tracer,
        )  # fmt: skip
        transport = httpx.ASGITransport(app=build_app(state))
        return httpx.AsyncClient(transport=transport, base_url="http://engine")

    yield start
    for engine in engines:
        await engine.close()
