"""Tests of the adapter registry with a fake engine: deadlines and disconnects of waiting requests."""

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
from penstock_engine.device import DeviceMemory
from penstock_engine.lora.checkpoint import Adapter
from penstock_engine.memory_plan import plan_memory
from penstock_engine.server.adapters import AdapterRegistry
from penstock_engine.server.async_engine import now_s
from penstock_engine.server.errors import RequestError
from penstock_engine.server.metrics import EngineMetrics, RequestRecord


class BusyEngine:
    """A fake AsyncEngine whose calls run on one thread and block until `may_run` is set."""

    is_asleep = False

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.may_run = threading.Event()
        self.is_called = asyncio.Event()
        self.has_started = threading.Event()  # a call
        self.thread = ThreadPoolExecutor(1)
        adapters = SimpleNamespace(
            add=lambda name, _: self.names.add(name), remove=self.names.discard
        )
        self._runner = SimpleNamespace(adapters=adapters)

    async def call_runner(self, function: Callable[[Any], Any]) -> Any:
        def call() -> Any:
            self.has_started.set()
            self.may_run.wait()
            return function(self._runner)

        done = self.thread.submit(call)
        self.is_called.set()
        return await asyncio.wrap_future(done)


@pytest.fixture
async def engine() -> AsyncIterator[BusyEngine]:
    engine = BusyEngine()
    yield engine
    engine.may_run.set()
    engine.thread.shutdown()


@pytest.fixture(autouse=True)
def _fake_read_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any, **__: Any) -> Adapter:
        return Adapter(4, {})

    monkeypatch.setattr("penstock_engine.server.adapters.read_adapter", read)


def registry(engine: Any, model_dir: Path, in_memory: dict[str, Adapter]) -> AdapterRegistry:
    """Returns a registry with room for one adapter."""
    config = EngineConfig(model_dir=model_dir, enable_lora=True, max_loras=1, max_cpu_loras=1)
    memory_plan = plan_memory(config, device_name="cpu", memory=DeviceMemory(1 << 40))
    return AdapterRegistry(
        engine, config, EngineMetrics("small", config, memory_plan),
        targets={}, dtype="float32", taken_names=["small"],
        in_memory=in_memory,
    )  # fmt: skip


async def use_adapter(
    registry: AdapterRegistry, name: str, *, deadline_s: float | None = None
) -> None:
    async with registry.hold(name, RequestRecord(now_s(), 1, 1, deadline_s, name, None)):
        pass


async def disconnect(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_disconnect_during_an_eviction_leaves_no_adapter_behind(
    engine: BusyEngine, model_dir: Path
) -> None:
    """The client disconnects before the engine has removed the first adapter."""
    in_memory: dict[str, Adapter] = {}
    adapters = registry(engine, model_dir, in_memory)
    engine.may_run.set()
    for name in ("a", "b"):
        await adapters.load(name, Path(name), path=name)
    assert engine.names == set(in_memory) == {"b#2"}

    step = threading.Event()
    engine.thread.submit(step.wait)
    engine.is_called.clear()
    request = asyncio.create_task(use_adapter(adapters, "a"))
    await engine.is_called.wait()
    await disconnect(request)
    step.set()
    await use_adapter(adapters, "b")
    assert engine.names == set(in_memory)


async def test_a_disconnect_during_a_load_leaves_no_adapter_behind(
    engine: BusyEngine, model_dir: Path
) -> None:
    in_memory: dict[str, Adapter] = {}
    adapters = registry(engine, model_dir, in_memory)
    loading = asyncio.create_task(adapters.load("a", Path("a"), path="a"))
    await engine.is_called.wait()
    await asyncio.to_thread(engine.has_started.wait)
    disconnecting = asyncio.create_task(disconnect(loading))
    await asyncio.sleep(0)
    engine.may_run.set()
    await disconnecting
    await adapters.load("b", Path("b"), path="b")
    assert engine.names == set(in_memory) == {"b#2"}


async def test_a_request_waits_for_an_adapter_until_its_deadline(
    engine: BusyEngine, model_dir: Path
) -> None:
    """Another request holds the only place in memory until the deadline has passed."""
    adapters = registry(engine, model_dir, {})
    engine.may_run.set()
    for name in ("a", "b"):
        await adapters.load(name, Path(name), path=name)
    async with adapters.hold("b", RequestRecord(now_s(), 1)):
        deadline_s = now_s() + 0.05
        with pytest.raises(RequestError) as raised:
            await use_adapter(adapters, "a", deadline_s=deadline_s)
        waited_until_s = now_s()
    assert (raised.value.status, waited_until_s >= deadline_s) == (504, True)
    assert raised.value.message == "the request's deadline passed while it waited"
    await use_adapter(adapters, "a")
    assert engine.names == {"a#3"}
