"""The engine holds the adapters that the registry knows of, whenever clients leave."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock_engine.config import EngineConfig
from penstock_engine.lora.checkpoint import Adapter
from penstock_engine.server.adapters import AdapterRegistry
from penstock_engine.server.async_engine import now_s
from penstock_engine.server.metrics import EngineMetrics, RequestRecord
from penstock_engine.sizing import size


class BusyEngine:
    """An engine's thread that answers between two steps. Each answer takes until `goes_on` is set."""

    is_asleep = False

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.goes_on = threading.Event()
        self.is_asked = asyncio.Event()
        self.begins = threading.Event()  # an answer
        self.thread = ThreadPoolExecutor(1)
        adapters = SimpleNamespace(
            add=lambda name, _: self.names.add(name), remove=self.names.discard
        )
        self._runner = SimpleNamespace(adapters=adapters)

    async def call_runner(self, function: Callable[[Any], Any]) -> Any:
        def answer() -> Any:
            self.begins.set()
            self.goes_on.wait()
            return function(self._runner)

        done = self.thread.submit(answer)
        self.is_asked.set()
        return await asyncio.wrap_future(done)


@pytest.fixture
async def engine() -> AsyncIterator[BusyEngine]:
    engine = BusyEngine()
    yield engine
    engine.goes_on.set()
    engine.thread.shutdown()


@pytest.fixture(autouse=True)
def _read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any, **__: Any) -> Adapter:
        return Adapter(4, {})

    monkeypatch.setattr("penstock_engine.server.adapters.read_adapter", read)


def registry(engine: Any, model_dir: Path, in_memory: dict[str, Adapter]) -> AdapterRegistry:
    """A registry with room for one adapter."""
    config = EngineConfig(model_dir=model_dir, enable_lora=True, max_loras=1, max_cpu_loras=1)
    sizing = size(config, device_name="cpu", memory_limit_bytes=1 << 40)
    return AdapterRegistry(
        engine, config, EngineMetrics("small", config, sizing),
        targets={}, dtype="float32", root=None, taken_names=["small"],
        in_memory=in_memory,
    )  # fmt: skip


async def use(registry: AdapterRegistry, name: str) -> None:
    async with registry.hold(name, RequestRecord(now_s(), 1, 1, None, name, None)):
        pass


async def leave(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_client_that_leaves_while_an_adapter_goes_leaves_none_behind(
    engine: BusyEngine, model_dir: Path
) -> None:
    """The client leaves before the engine has removed the first adapter."""
    in_memory: dict[str, Adapter] = {}
    adapters = registry(engine, model_dir, in_memory)
    engine.goes_on.set()
    for name in ("a", "b"):
        await adapters.load(name, Path(name), path=name)
    assert engine.names == set(in_memory) == {"b#2"}

    step = threading.Event()
    engine.thread.submit(step.wait)
    engine.is_asked.clear()
    request = asyncio.create_task(use(adapters, "a"))
    await engine.is_asked.wait()
    await leave(request)
    step.set()
    await use(adapters, "b")
    assert engine.names == set(in_memory)


async def test_a_client_that_leaves_while_an_adapter_comes_leaves_none_behind(
    engine: BusyEngine, model_dir: Path
) -> None:
    in_memory: dict[str, Adapter] = {}
    adapters = registry(engine, model_dir, in_memory)
    loading = asyncio.create_task(adapters.load("a", Path("a"), path="a"))
    await engine.is_asked.wait()
    await asyncio.to_thread(engine.begins.wait)
    leaving = asyncio.create_task(leave(loading))
    await asyncio.sleep(0)
    engine.goes_on.set()
    await leaving
    await adapters.load("b", Path("b"), path="b")
    assert engine.names == set(in_memory) == {"b#2"}
