"""Registry of LoRA adapters, and their eviction from host memory.

An adapter is registered from its load to its unload. In between its weights may be evicted to make
room for another adapter; the next request that names it reads them again.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from penstock_engine.config import EngineConfig
from penstock_engine.core.errors import ModelError
from penstock_engine.lora.checkpoint import Adapter, read_adapter
from penstock_engine.runner import Runner
from penstock_engine.server.async_engine import AsyncEngine, now_s
from penstock_engine.server.deadlines import deadline_error
from penstock_engine.server.errors import RequestError
from penstock_engine.server.metrics import EngineMetrics, RequestRecord

NAME = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z")
MAX_ADAPTERS = 1024
# Maximum wait of a request for its adapter to be read into host memory. Longer than most answers take,
# shorter than usual client timeouts.
MAX_ADAPTER_WAIT_S = 60.0

Json = dict[str, Any]


class AdaptersBusy(RequestError):
    """No adapter could be evicted in time, because requests used all of them."""


@dataclass(slots=True)
class AdapterEntry:
    """A registered adapter.

    folder: where its files are. path: the folder as the client gave it. parent: the model it adapts.
    identity: names the weights read last; "" before the first read. Unlike the name it is never
    reused, so that no cached block outlives its weights. num_users: requests that hold the weights.
    num_waiting: requests that wait for them. is_draining: whether it accepts no new requests and is
    evicted once the running ones end. last_used_s: monotonic time. loaded_at_s: Unix time.
    """

    name: str
    folder: Path
    path: str
    parent: str
    identity: str = ""
    num_users: int = 0
    num_waiting: int = 0
    is_draining: bool = False
    last_used_s: float = 0.0
    loaded_at_s: float = field(default_factory=time.time)


class AdapterRegistry:
    """Loads, evicts and unloads adapters, one change at a time. Use it on the server's event loop."""

    def __init__(
        self,
        engine: AsyncEngine,
        config: EngineConfig,
        metrics: EngineMetrics,
        *,
        targets: Mapping[str, tuple[int, int]],
        dtype: str,
        taken_names: list[str],
        in_memory: dict[str, Adapter],
    ) -> None:
        """targets: shapes of the layers that an adapter may change, by name. dtype: torch's name.
        taken_names: names of the model itself. in_memory: adapters in host memory by identity, kept
        up to date here, for a runner that is loaded again after a sleep."""
        self._engine = engine
        self._config = config
        self._metrics = metrics
        self._targets = targets
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._taken_names = taken_names
        self._in_memory = in_memory
        self._known: dict[str, AdapterEntry] = {}
        self._num_read = 0
        self._lock = asyncio.Lock()
        self._is_released = asyncio.Event()

    @property
    def names(self) -> list[str]:
        return list(self._known)

    def label(self, name: str | None) -> str:
        """Returns the adapter's name if `name` is a registered adapter, "" if it is the model itself."""
        return name if name is not None and name in self._known else ""

    def model_cards(self) -> list[Json]:
        """Returns the adapters' entries in /v1/models, with the fields that differ from the model's."""
        return [
            {"id": entry.name, "root": entry.path, "parent": entry.parent}
            for entry in self._known.values()
        ]

    async def load(
        self,
        name: str,
        folder: Path,
        *,
        path: str,
        parent: str | None = None,
        replaces: bool = False,
    ) -> None:
        """Reads and registers an adapter. Raises RequestError, ModelError.

        parent: name of the base model; None: its first name. replaces: whether to replace an adapter of
        the same name once the new one is read; running sequences finish with the old one.
        """
        async with self._lock:
            if NAME.match(name) is None:
                raise RequestError(400, "lora_name is not a valid adapter name", param="lora_name")
            if name in self._taken_names:
                raise RequestError(400, f"{name} is a name of the model", param="lora_name")
            old = self._known.get(name)
            if old is not None and not replaces:
                raise RequestError(400, f"adapter {name} is loaded already", param="lora_name")
            if old is None and len(self._known) >= MAX_ADAPTERS:
                raise RequestError(400, f"there are {MAX_ADAPTERS} adapters already: unload some")
            entry = AdapterEntry(name, folder, path, parent or self._taken_names[0])
            async with _time_limit(MAX_ADAPTER_WAIT_S):
                await self._read_weights(entry)
            self._known[name] = entry
            if old is not None and old.num_users == 0 and old.identity in self._in_memory:
                await self._evict(old)

    async def unload(self, name: str) -> None:
        """Unregisters an adapter. Sequences that use it run to their end. Raises RequestError (404)."""
        entry = self._known.pop(name, None)
        if entry is None:
            raise RequestError(404, f"there is no adapter {name[:128]}", param="lora_name")
        if entry.num_users == 0:
            await self._evict(entry)

    @asynccontextmanager
    async def hold(self, name: str | None, record: RequestRecord) -> AsyncIterator[str]:
        """Keeps an adapter's weights in memory for its body, and yields their identity.

        Yields "" for the model itself. If the weights are not in memory, waits until they are, at most
        MAX_ADAPTER_WAIT_S and until the record's deadline. Raises RequestError after that.
        """
        entry = self._known.get(name or "")
        if entry is None:
            yield ""
            return
        if not self._is_resident(entry):
            entry.num_waiting += 1
            try:
                await self._wait_until_resident(entry, record)
            finally:
                entry.num_waiting -= 1
        entry.num_users += 1  # without an await since the check that it is in memory
        try:
            yield entry.identity
        finally:
            entry.num_users -= 1
            entry.last_used_s = time.monotonic()
            self._is_released.set()
            if entry.num_users == 0 and self._known.get(entry.name) is not entry:
                await self._evict(entry)

    async def residency(self) -> list[Json]:
        """Returns the entries of /v1/adapters: tier (device, host, disk), rank, bytes and requests."""
        active = await self._active()
        return [
            {
                "id": entry.name,
                "object": "adapter",
                "tier": self._tier(entry, active),
                "rank": None if adapter is None else adapter.rank,
                "bytes": 0 if adapter is None else adapter.num_bytes,
                "requests": entry.num_users + entry.num_waiting,
                "loaded_at": int(entry.loaded_at_s),
            }
            for entry in self._known.values()
            for adapter in (self._in_memory.get(entry.identity),)
        ]

    async def _wait_until_resident(self, entry: AdapterEntry, record: RequestRecord) -> None:
        remaining_s = record.remaining_s(now_s())
        try:
            async with _time_limit(MAX_ADAPTER_WAIT_S if remaining_s is None else remaining_s):
                await self._read_again(entry)
        except AdaptersBusy as error:
            if remaining_s is None or remaining_s > MAX_ADAPTER_WAIT_S:
                raise
            self._metrics.observe_timeout(record, "queued")
            raise deadline_error("queued") from error

    async def _read_again(self, entry: AdapterEntry) -> None:
        async with self._lock:
            if self._is_resident(entry):
                return
            try:
                await self._read_weights(entry)
            except ModelError as error:
                raise RequestError(503, f"adapter {entry.name} cannot be read again") from error

    def _is_resident(self, entry: AdapterEntry) -> bool:
        """Whether the weights are in host memory and accept new requests."""
        return entry.identity in self._in_memory and not entry.is_draining

    async def _make_room(self) -> None:
        """Evicts the least recently used adapter that no request uses; waits until there is one.

        If all are in use, the one with the fewest requests accepts no new ones, so that the wait ends
        when its running requests finish.
        """
        while len(self._in_memory) >= self._config.max_host_loras:
            resident = [k for k in self._known.values() if k.identity in self._in_memory]
            idle = [k for k in resident if k.num_users == 0]
            if idle:
                await self._evict(min(idle, key=lambda k: k.last_used_s))
                continue
            if resident and not any(k.is_draining for k in resident):
                min(resident, key=lambda k: (k.num_users, k.last_used_s)).is_draining = True
            self._is_released.clear()
            await self._is_released.wait()

    async def _read_weights(self, entry: AdapterEntry) -> None:
        """Reads the weights into host memory; evicts another adapter first if necessary.

        They get a new identity, because the files may have changed since the last read.
        """
        try:
            await self._make_room()
        finally:
            for known in self._known.values():
                known.is_draining = False
        adapter = await asyncio.to_thread(
            read_adapter,
            entry.folder,
            self._targets,
            max_rank=self._config.max_lora_rank,
            dtype=self._dtype,
        )
        self._num_read += 1
        identity = f"{entry.name}#{self._num_read}"
        try:
            await self._call_runner(lambda runner: runner.adapters.add(identity, adapter))
        except BaseException:  # cancelled by a disconnect; the engine may have added it already
            await self._remove(identity)
            raise
        entry.identity = identity
        self._in_memory[identity] = adapter
        entry.last_used_s = time.monotonic()
        self._metrics.set_adapter(entry.name, in_memory=True)

    async def _evict(self, entry: AdapterEntry) -> None:
        identity = entry.identity
        self._in_memory.pop(identity, None)
        self._is_released.set()
        current = self._known.get(entry.name)
        if current is None:
            self._metrics.remove_adapter(entry.name)
        else:
            self._metrics.set_adapter(entry.name, in_memory=current.identity in self._in_memory)
        await self._remove(identity)

    async def _remove(self, identity: str) -> None:
        """Removes weights from the engine, even when the caller is cancelled meanwhile."""
        await asyncio.shield(self._call_runner(lambda runner: runner.adapters.remove(identity)))

    async def _call_runner(self, function: Any) -> Any:
        if self._engine.is_asleep:
            return None  # the runner loaded on wake-up gets all adapters in memory
        return await self._engine.call_runner(function)

    async def _active(self) -> set[str]:
        def active(runner: Runner) -> set[str]:
            return set(runner.adapters.active)

        return set(await self._call_runner(active) or ())

    def _tier(self, entry: AdapterEntry, active: set[str]) -> str:
        if entry.identity in active:
            return "device"
        return "host" if entry.identity in self._in_memory else "disk"


@asynccontextmanager
async def _time_limit(timeout_s: float) -> AsyncIterator[None]:
    """Limits its body to timeout_s, at most MAX_ADAPTER_WAIT_S. Raises AdaptersBusy at the limit."""
    try:
        async with asyncio.timeout(min(timeout_s, MAX_ADAPTER_WAIT_S)):
            yield
    except TimeoutError as error:
        raise AdaptersBusy(503, "all adapters in memory are in use: try again") from error
