"""Host memory for adapters: reads their weights, and evicts the least recently used ones."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from penstock_engine.execution.runner import Runner
from penstock_engine.lora.adapter_files import AdapterFolder
from penstock_engine.lora.checkpoint import Adapter, AdapterCheckpoint
from penstock_engine.options.config import EngineConfig
from penstock_engine.server.adapters.reader_threads import ReaderThreads
from penstock_engine.server.async_engine import AsyncEngine
from penstock_engine.server.metrics.engine_metrics import EngineMetrics
from penstock_engine.server.transport.errors import RequestError

# Maximum wait for an adapter to be read into host memory. Longer than most answers take, shorter than usual
# client timeouts.
MAX_ADAPTER_WAIT_S = 60.0
# Adapters that are read at the same time, so that a slow volume does not hold up loads from other ones. One
# whose read hangs counts until its read ends: if so many hang, the engine loads no adapter.
MAX_READS = 4
# Maximum wait for the list of adapters on the device. A step of the engine may take longer.
ACTIVE_WAIT_S = 0.2

# Checks the adapter in a folder by its settings and header. Raises ModelError.
CheckAdapter = Callable[[AdapterFolder], AdapterCheckpoint]


class LoadDelayed(RequestError):
    """An adapter was not read in time (503): another try may work."""


@dataclass(slots=True)
class AdapterEntry:
    """An adapter by its name."""

    name: str
    folder: AdapterFolder  # where its files are
    path: str  # the folder as the client gave it
    parent: str  # the model it adapts
    # Names the weights read last; "" before the first read. Unlike the name it is never reused, so that no
    # cached block outlives its weights.
    identity: str = ""
    rank: int | None = None  # of these weights
    num_users: int = 0  # requests that hold the weights
    num_waiting: int = 0  # requests that wait for them
    is_registered: bool = False  # whether requests can name it
    is_loading: bool = False  # whether its weights are being read
    # Whether it accepts no new requests and is evicted once the running ones end
    is_draining: bool = False
    last_used_s: float = 0.0  # monotonic time
    loaded_at_s: float = field(default_factory=time.time)  # Unix time


class AdapterMemory:
    """Weights of adapters in host memory and in the engine. Use it on the server's event loop."""

    def __init__(
        self,
        engine: AsyncEngine,
        config: EngineConfig,
        metrics: EngineMetrics,
        *,
        check: CheckAdapter,
        dtype: torch.dtype,
        in_memory: dict[str, Adapter],
    ) -> None:
        """in_memory: adapters in host memory by identity, kept up to date here, for a runner that is loaded
        again after a sleep."""
        self._engine = engine
        self._max_adapters = config.max_host_loras
        self._metrics = metrics
        self._check = check
        self._dtype = dtype
        self._in_memory = in_memory
        self._resident: dict[str, AdapterEntry] = {}  # by identity, as in_memory
        self._num_reserved = 0  # places for adapters that are being read
        self._num_read = 0
        self._readers = ReaderThreads(MAX_READS)
        self._room_lock = asyncio.Lock()
        self._is_released = asyncio.Event()
        self._last_active: set[str] = set()
        self._changed_asleep: set[str] = set()  # identities of adapters

    def is_resident(self, entry: AdapterEntry) -> bool:
        """Whether the weights are in host memory and accept new requests."""
        return entry.identity in self._in_memory and not entry.is_draining

    def adapter(self, entry: AdapterEntry) -> Adapter | None:
        """The weights in host memory."""
        return self._in_memory.get(entry.identity)

    def notify_released(self) -> None:
        """Let a load that waits for memory look again, after a request has ended."""
        self._is_released.set()

    async def ensure_resident(self, entry: AdapterEntry, timeout_s: float) -> None:
        """Read the weights of an adapter into host memory unless they are there.

        One call at a time for each adapter. Raises ModelError, LoadDelayed.
        """
        deadline_s = now_s() + min(timeout_s, MAX_ADAPTER_WAIT_S)
        if entry.is_draining:
            # The adapter drains for the load that has the lock, and may be in memory still after it.
            async with _until(deadline_s, _all_in_use), self._room_lock:
                pass
        if not self.is_resident(entry):
            await self._load(entry, deadline_s)

    async def _load(self, entry: AdapterEntry, deadline_s: float) -> None:
        """Read the weights into host memory; evict another adapter first if necessary.

        They get a new identity, because the files may have changed since the last read.
        """
        entry.is_loading = True
        folder = entry.folder
        try:
            async with _until(deadline_s, _slow_read):
                checkpoint = await self._readers.run(folder.path, lambda: self._check(folder))
            async with self._room(deadline_s):
                async with _until(deadline_s, _slow_read):
                    adapter = await self._readers.run(
                        folder.path, lambda: checkpoint.read(self._dtype)
                    )
                await self._add(entry, adapter)
        finally:
            entry.is_loading = False

    async def evict(self, entry: AdapterEntry) -> None:
        """Remove the weights of an adapter from host memory and from the engine."""
        identity = entry.identity
        self._in_memory.pop(identity, None)
        self._resident.pop(identity, None)
        entry.is_draining = False
        self._is_released.set()
        if entry.is_registered:
            self._metrics.set_adapter(entry.name, in_memory=False)
        await self._remove(identity)

    async def active(self) -> set[str]:
        """Identities of the adapters on the device; the last known ones while the engine is busy."""
        if self._engine.is_asleep:
            return set()
        try:
            async with asyncio.timeout(ACTIVE_WAIT_S):
                self._last_active = set(await self._engine.call_runner(_active))
        except TimeoutError:
            pass  # within a long step
        return self._last_active

    async def _add(self, entry: AdapterEntry, adapter: Adapter) -> None:
        self._num_read += 1
        identity = f"{entry.name}#{self._num_read}"
        try:
            await self._call_runner(identity, lambda runner: runner.adapters.add(identity, adapter))
        except BaseException:  # cancelled by a disconnect; the engine may have added it already
            await self._remove(identity)
            raise
        entry.identity = identity
        entry.rank = adapter.rank
        entry.last_used_s = time.monotonic()
        self._in_memory[identity] = adapter
        self._resident[identity] = entry

    @asynccontextmanager
    async def _room(self, deadline_s: float) -> AsyncIterator[None]:
        """Reserve a place in memory for the body. Loads get places in the order in which they ask."""
        is_reserved = False
        try:
            async with _until(deadline_s, _all_in_use), self._room_lock:
                await self._make_room()
                self._num_reserved += 1
                is_reserved = True
            yield
        finally:
            self._num_reserved -= is_reserved
            self._is_released.set()

    async def _make_room(self) -> None:
        """Evict the least recently used adapter that no request uses; wait until there is one.

        If all are in use, the one with the fewest requests accepts no new ones, so that the wait ends
        when its running requests finish.
        """
        draining: AdapterEntry | None = None
        try:
            while len(self._in_memory) + self._num_reserved >= self._max_adapters:
                idle = [entry for entry in self._resident.values() if entry.num_users == 0]
                if idle:
                    await self.evict(min(idle, key=lambda entry: entry.last_used_s))
                    continue
                if draining is None or draining.identity not in self._in_memory:
                    draining = self._drain_least_used()
                self._is_released.clear()
                await self._is_released.wait()
        finally:
            if draining is not None:
                draining.is_draining = False

    def _drain_least_used(self) -> AdapterEntry | None:
        """Let the adapter with the fewest requests accept no new ones."""
        usable = [entry for entry in self._resident.values() if entry.is_registered]
        least = min(usable, key=lambda entry: (entry.num_users, entry.last_used_s), default=None)
        if least is not None:
            least.is_draining = True
        return least

    async def _remove(self, identity: str) -> None:
        """Remove weights from the engine, even when the caller is cancelled meanwhile."""
        await asyncio.shield(
            self._call_runner(identity, lambda runner: runner.adapters.remove(identity))
        )

    async def _call_runner(self, identity: str, function: Callable[[Runner], Any]) -> None:
        """Call a function with the runner. An engine that sleeps gets all adapters when it wakes up."""
        if self._engine.is_asleep:
            self._changed_asleep.add(identity)
        else:
            await self._engine.call_runner(function)

    async def catch_up(self) -> None:
        """Give the runner the adapters that changed while the engine woke up, before it gets a request."""
        changed, self._changed_asleep = self._changed_asleep, set()
        adapters = {identity: self._in_memory.get(identity) for identity in changed}

        def apply(runner: Runner) -> None:
            for identity, adapter in adapters.items():
                if adapter is None:
                    runner.adapters.remove(identity)
                else:
                    runner.adapters.add(identity, adapter)

        if changed:
            await self._engine.call_runner(apply)


def now_s() -> float:
    """Time of the event loop in seconds."""
    return asyncio.get_running_loop().time()


def _active(runner: Runner) -> list[str]:
    return runner.adapters.active


@asynccontextmanager
async def _until(deadline_s: float, error: Callable[[], LoadDelayed]) -> AsyncIterator[None]:
    """Cancel the body at a time of the event loop, and raise the error."""
    try:
        async with asyncio.timeout_at(deadline_s):
            yield
    except TimeoutError as timeout:
        raise error() from timeout


def _slow_read() -> LoadDelayed:
    return LoadDelayed(503, "the adapter could not be read in time: try again", code="read_timeout")


def _all_in_use() -> LoadDelayed:
    return LoadDelayed(503, "all adapters in memory are in use: try again", code="no_free_slot")
