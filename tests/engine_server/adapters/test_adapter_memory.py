"""Tests of the adapter registry with a fake engine: slow reads, deadlines, and disconnects."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock_engine.core.errors import ModelError
from penstock_engine.lora.adapter_files import AdapterFolder
from penstock_engine.lora.checkpoint import Adapter
from penstock_engine.machine.device import DeviceMemory
from penstock_engine.memory.plan import plan_memory
from penstock_engine.options.config import EngineConfig
from penstock_engine.server.adapters.memory import MAX_READS
from penstock_engine.server.adapters.registry import AdapterRegistry
from penstock_engine.server.async_engine import now_s
from penstock_engine.server.metrics.engine_metrics import EngineMetrics
from penstock_engine.server.metrics.request_record import RequestRecord
from penstock_engine.server.transport.errors import RequestError


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
            active=[],
            add=lambda name, _: self.names.add(name),
            remove=lambda name: self.names.discard(name),
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


class SlowFolders:
    """Fake checks and reads of adapters: those of `slow` wait until `may_read` is set."""

    def __init__(self) -> None:
        self.slow: set[str] = set()
        self.broken: set[str] = set()
        self.may_read = threading.Event()
        self.has_started = threading.Event()  # a slow read
        self.reads: list[str] = []

    def check(self, folder: AdapterFolder, *_: Any, **__: Any) -> Any:
        def read(_: Any) -> Adapter:
            self.reads.append(folder.path.name)
            if folder.path.name in self.slow:
                self.has_started.set()
                self.may_read.wait()
            return Adapter(4, {})

        if folder.path.name in self.broken:
            raise ModelError("RankTooLarge", "too large")
        return SimpleNamespace(read=read)


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowFolders]:
    made = SlowFolders()
    monkeypatch.setattr("penstock_engine.server.adapters.registry.AdapterCheckpoint", made)
    yield made
    made.may_read.set()


async def load(adapters: AdapterRegistry, name: str, **settings: Any) -> None:
    await adapters.load(name, AdapterFolder(Path(name)), path=name, **settings)


async def entries(adapters: AdapterRegistry) -> dict[str, str]:
    return {each["id"]: each["state"] for each in (await adapters.residency())["data"]}


def registry(
    engine: Any, model_dir: Path, in_memory: dict[str, Adapter], slots: int = 1
) -> AdapterRegistry:
    """Returns a registry with room for `slots` adapters."""
    config = EngineConfig(model_dir=model_dir, enable_lora=True, max_loras=1, max_cpu_loras=slots)
    memory_plan = plan_memory(config, device_name="cpu", memory=DeviceMemory(1 << 40))
    return AdapterRegistry(
        engine, config, EngineMetrics("small", config, memory_plan),
        targets={}, dtype="float32", taken_names=["small"],
        in_memory=in_memory,
    )  # fmt: skip


async def use_adapter(
    registry: AdapterRegistry, name: str, *, deadline_s: float | None = None
) -> None:
    async with registry.hold(name, RequestRecord(now_s(), 1, deadline_s=deadline_s, adapter=name)):
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
        await load(adapters, name)
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
    loading = asyncio.create_task(load(adapters, "a"))
    await engine.is_called.wait()
    await asyncio.to_thread(engine.has_started.wait)
    disconnecting = asyncio.create_task(disconnect(loading))
    await asyncio.sleep(0)
    engine.may_run.set()
    await disconnecting
    await load(adapters, "b")
    assert engine.names == set(in_memory) == {"b#2"}


async def test_the_model_does_not_answer_for_an_adapter_that_was_unloaded(
    engine: BusyEngine, model_dir: Path
) -> None:
    """The request was read while the adapter was there."""
    adapters = registry(engine, model_dir, {})
    engine.may_run.set()
    await load(adapters, "a")
    await adapters.unload("a")
    with pytest.raises(RequestError) as raised:
        await use_adapter(adapters, "a")
    assert (raised.value.status, raised.value.message) == (404, "The model `a` does not exist.")
    await use_adapter(adapters, "small")


async def test_a_request_waits_for_an_adapter_until_its_deadline(
    engine: BusyEngine, model_dir: Path
) -> None:
    """Another request holds the only place in memory until the deadline has passed."""
    adapters = registry(engine, model_dir, {})
    engine.may_run.set()
    for name in ("a", "b"):
        await load(adapters, name)
    async with adapters.hold("b", RequestRecord(now_s(), 1)):
        deadline_s = now_s() + 0.05
        with pytest.raises(RequestError) as raised:
            await use_adapter(adapters, "a", deadline_s=deadline_s)
        waited_until_s = now_s()
    assert (raised.value.status, waited_until_s >= deadline_s) == (504, True)
    assert raised.value.message == "the request's deadline passed while it waited"
    await use_adapter(adapters, "a")
    assert engine.names == {"a#3"}


async def test_a_slow_read_holds_up_no_other_adapter(
    engine: BusyEngine, folders: SlowFolders, model_dir: Path
) -> None:
    engine.may_run.set()
    folders.slow = {"slow"}
    adapters = registry(engine, model_dir, {}, slots=3)
    await load(adapters, "a")
    slow = asyncio.create_task(load(adapters, "slow"))
    await asyncio.to_thread(folders.has_started.wait)
    await load(adapters, "b")
    assert await entries(adapters) == {"slow": "loading", "a": "resident", "b": "resident"}
    # The third place is reserved for the slow one: a fourth evicts the first.
    await load(adapters, "c")
    assert await entries(adapters) == {
        "slow": "loading", "a": "evicted", "b": "resident", "c": "resident",
    }  # fmt: skip
    folders.may_read.set()
    await slow
    assert (await entries(adapters))["slow"] == "resident"
    assert len(engine.names) == 3


async def test_a_load_ends_at_its_deadline_although_its_read_hangs(
    engine: BusyEngine, folders: SlowFolders, model_dir: Path
) -> None:
    engine.may_run.set()
    folders.slow = {"slow"}
    adapters = registry(engine, model_dir, {}, slots=2)
    await load(adapters, "a")
    for _ in range(MAX_READS + 1):
        with pytest.raises(RequestError) as raised:
            await load(adapters, "slow", timeout_s=0.05)
        assert (raised.value.status, raised.value.code) == (503, "read_timeout")
    assert await entries(adapters) == {"a": "resident"}
    # The place in memory that was reserved for it is free again, and only one thread is lost.
    await load(adapters, "b", timeout_s=10)
    assert await entries(adapters) == {"a": "resident", "b": "resident"}


async def test_loads_beyond_the_places_in_use_say_so(engine: BusyEngine, model_dir: Path) -> None:
    engine.may_run.set()
    adapters = registry(engine, model_dir, {})
    await load(adapters, "a")
    async with adapters.hold("a", RequestRecord(now_s(), 1)):
        with pytest.raises(RequestError) as raised:
            await load(adapters, "b", timeout_s=0.05)
        assert (raised.value.status, raised.value.code) == (503, "no_free_slot")
        # The adapter takes requests again that arrive after the load has given up.
        await asyncio.wait_for(use_adapter(adapters, "a"), 5)


async def test_loads_of_one_name_read_once_and_again_only_in_place(
    engine: BusyEngine, folders: SlowFolders, model_dir: Path
) -> None:
    engine.may_run.set()
    adapters = registry(engine, model_dir, {}, slots=2)
    await asyncio.gather(*(load(adapters, "a") for _ in range(5)))
    assert folders.reads == ["a"]
    await load(adapters, "a", replaces=True)
    assert folders.reads == ["a", "a"]
    assert engine.names == {"a#2"}
    with pytest.raises(RequestError) as raised:
        await adapters.load("a", AdapterFolder(Path("b")), path="b")
    assert (raised.value.status, raised.value.code) == (400, "name_in_use")


async def test_a_load_of_an_evicted_adapter_reads_it_again(
    engine: BusyEngine, folders: SlowFolders, model_dir: Path
) -> None:
    engine.may_run.set()
    adapters = registry(engine, model_dir, {})
    for name in ("a", "b", "a"):
        await load(adapters, name)
    assert await entries(adapters) == {"a": "resident", "b": "evicted"}


async def test_a_refused_adapter_evicts_none(
    engine: BusyEngine, folders: SlowFolders, model_dir: Path
) -> None:
    engine.may_run.set()
    folders.broken = {"b"}
    adapters = registry(engine, model_dir, {})
    await load(adapters, "a")
    with pytest.raises(ModelError):
        await load(adapters, "b")
    assert await entries(adapters) == {"a": "resident"}


async def test_an_adapter_that_breaks_after_its_eviction_fails_its_own_requests(
    engine: BusyEngine, folders: SlowFolders, model_dir: Path
) -> None:
    engine.may_run.set()
    adapters = registry(engine, model_dir, {})
    for name in ("a", "b"):
        await load(adapters, name)
    folders.broken = {"a"}
    with pytest.raises(RequestError, match="adapter a cannot be read again: too large") as raised:
        await use_adapter(adapters, "a")
    assert raised.value.status == 503
    await use_adapter(adapters, "b")


async def test_an_unloaded_adapter_stays_until_its_requests_end(
    engine: BusyEngine, model_dir: Path
) -> None:
    engine.may_run.set()
    in_memory: dict[str, Adapter] = {}
    adapters = registry(engine, model_dir, in_memory, slots=2)
    await load(adapters, "a")
    async with adapters.hold("a", RequestRecord(now_s(), 1)) as identity:
        await adapters.unload("a")
        assert await entries(adapters) == {}
        assert engine.names == set(in_memory) == {identity}
        await load(adapters, "a")  # other weights under the name
        assert engine.names == {identity, "a#2"}
    assert engine.names == set(in_memory) == {"a#2"}


async def test_the_list_does_not_wait_for_a_long_step(engine: BusyEngine, model_dir: Path) -> None:
    engine.may_run.set()
    adapters = registry(engine, model_dir, {})
    await load(adapters, "sql@0a1b2c3d")
    step = threading.Event()
    engine.thread.submit(step.wait)
    try:
        answer = await asyncio.wait_for(adapters.residency(), 5)
    finally:
        step.set()
    assert answer["slots"] == {"device": 1, "host": 1}
    (entry,) = answer["data"]
    assert (entry["id"], entry["path"], entry["tier"], entry["rank"]) == (
        "sql@0a1b2c3d", "sql@0a1b2c3d", "host", 4,
    )  # fmt: skip
    assert "#" not in str(answer)


async def test_what_is_loaded_while_the_engine_wakes_up_is_in_its_runner(
    engine: BusyEngine, model_dir: Path
) -> None:
    """The runner was loaded again with the adapters of then; the engine still counts as asleep."""
    in_memory: dict[str, Adapter] = {}
    adapters = registry(engine, model_dir, in_memory)
    engine.may_run.set()
    await load(adapters, "a")
    engine.is_asleep = True
    engine.names = set(in_memory)
    await load(adapters, "b")  # evicts the other one
    engine.is_asleep = False
    assert engine.names == {"a#1"}
    await adapters.catch_up()
    assert engine.names == set(in_memory) == {"b#2"}
