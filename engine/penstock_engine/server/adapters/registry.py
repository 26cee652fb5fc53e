"""Registry of LoRA adapters: their names, and the requests that use them.

An adapter is registered from its load to its unload. In between its weights may be evicted to make
room for another adapter; the next request that names it reads them again.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import torch

from penstock_engine.core.errors import ModelError
from penstock_engine.lora.adapter_files import AdapterFolder
from penstock_engine.lora.base_model import BaseModel
from penstock_engine.lora.checkpoint import Adapter, AdapterCheckpoint
from penstock_engine.options.config import EngineConfig
from penstock_engine.server.adapters.memory import (
    MAX_ADAPTER_WAIT_S,
    AdapterEntry,
    AdapterMemory,
    LoadDelayed,
)
from penstock_engine.server.async_engine import AsyncEngine, now_s
from penstock_engine.server.metrics.engine_metrics import EngineMetrics
from penstock_engine.server.metrics.request_record import RequestRecord
from penstock_engine.server.transport.deadlines import deadline_error
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import Json

# Long enough for the name of a LoraAdapter (253) and its version.
NAME = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._/@-]{0,263}\Z")
MAX_ADAPTERS = 1024


class AdapterRegistry:
    """Loads and unloads adapters by name. Use it on the server's event loop."""

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
        base: BaseModel | None = None,
    ) -> None:
        """targets: shapes of the layers that an adapter may change, by name. dtype: torch's name.
        taken_names: names of the model itself. in_memory: see AdapterMemory. base: what adapters have to
        fit; None: any model."""
        dtype_of_factors: torch.dtype = getattr(torch, dtype)
        base = base or BaseModel()

        def check(folder: AdapterFolder) -> AdapterCheckpoint:
            return AdapterCheckpoint.check(
                folder, targets, max_rank=config.max_lora_rank, base=base
            )

        self._slots = {"device": config.max_loras, "host": config.max_host_loras}
        self._metrics = metrics
        self._taken_names = taken_names
        self._known: dict[str, AdapterEntry] = {}
        self._first_loads: dict[str, AdapterEntry] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._memory = AdapterMemory(
            engine, config, metrics, check=check, dtype=dtype_of_factors, in_memory=in_memory
        )

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
        folder: AdapterFolder,
        *,
        path: str,
        parent: str | None = None,
        replaces: bool = False,
        timeout_s: float = MAX_ADAPTER_WAIT_S,
    ) -> None:
        """Reads and registers an adapter. Raises RequestError, ModelError.

        If the name is registered with the same folder, its weights are in memory afterwards. parent: name
        of the base model; None: its first name. replaces: whether to read the adapter again, or replace it by
        another one; running sequences finish with the old weights.
        """
        self._check_name(name)
        async with self._lock(name):
            old = self._known.get(name)
            if old is None or replaces:
                entry = AdapterEntry(name, folder, path, parent or self._taken_names[0])
                await self._register(entry, old, timeout_s)
            elif old.folder.path == folder.path:
                await self._read_again(old, timeout_s)
            else:
                raise RequestError(
                    400, f"adapter {name} is loaded already, from another path",
                    param="lora_name", code="name_in_use",
                )  # fmt: skip

    async def unload(self, name: str) -> None:
        """Unregisters an adapter. Sequences that use it run to their end. Raises RequestError (404)."""
        entry = self._known.pop(name, None)
        if entry is None:
            raise RequestError(
                404, f"there is no adapter {name[:128]}",
                param="lora_name", code="adapter_not_loaded",
            )  # fmt: skip
        await self._retire(entry)

    @asynccontextmanager
    async def hold(self, name: str | None, record: RequestRecord) -> AsyncIterator[str]:
        """Keeps an adapter's weights in memory for its body, and yields their identity.

        Yields "" for the model itself. If the weights are not in memory, waits until they are, at most
        MAX_ADAPTER_WAIT_S and until the record's deadline. Raises RequestError after that, and (404) for an
        adapter that was unloaded since the request was read.
        """
        entry = self._known.get(name or "")
        if entry is None:
            if name is not None and name not in self._taken_names:
                raise RequestError(404, f"The model `{name}` does not exist.", param="model")
            yield ""
            return
        if not self._memory.is_resident(entry):
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
            self._memory.notify_released()
            if not entry.is_registered:
                await self._retire(entry)

    async def catch_up(self) -> None:
        """Give the runner the changes of adapters during a wake-up. Call it right after that."""
        await self._memory.catch_up()

    async def residency(self) -> Json:
        """Returns the answer of /v1/adapters: slots, and tier, rank, bytes and requests of each adapter."""
        active = await self._memory.active()
        entries = {**self._first_loads, **self._known}
        return {
            "object": "list",
            "slots": self._slots,
            "data": [self._entry(entry, active) for entry in entries.values()],
        }

    def _entry(self, entry: AdapterEntry, active: set[str]) -> Json:
        adapter = self._memory.adapter(entry)
        tier = "disk" if adapter is None else "device" if entry.identity in active else "host"
        state = "evicted" if adapter is None else "resident"
        if entry.is_loading:
            tier = state = "loading"
        return {
            "id": entry.name,
            "object": "adapter",
            "path": entry.path,
            "state": state,
            "tier": tier,
            "rank": entry.rank,
            "bytes": 0 if adapter is None else adapter.num_bytes,
            "requests": entry.num_users + entry.num_waiting,
            "loaded_at": int(entry.loaded_at_s),
        }

    def _check_name(self, name: str) -> None:
        """Raises RequestError for a name that no adapter may have."""
        if NAME.match(name) is None:
            message, code = "lora_name is not a valid adapter name", "name_invalid"
        elif name in self._taken_names:
            message, code = f"{name} is a name of the model", "name_is_model"
        else:
            return
        raise RequestError(400, message, param="lora_name", code=code)

    def _lock(self, name: str) -> asyncio.Lock:
        """Lock of the loads of one name. It lives as long as one of them."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    async def _register(
        self, entry: AdapterEntry, old: AdapterEntry | None, timeout_s: float
    ) -> None:
        """Reads an adapter and gives it its name, which may be that of an older one."""
        if old is None and len(self._known) + len(self._first_loads) >= MAX_ADAPTERS:
            message = f"there are {MAX_ADAPTERS} adapters already: unload some"
            raise RequestError(400, message, code="too_many_adapters")
        if old is None:
            self._first_loads[entry.name] = entry
        try:
            await self._memory.ensure_resident(entry, timeout_s)
        finally:
            self._first_loads.pop(entry.name, None)
        replaced = self._known.get(entry.name)  # absent after an unload
        entry.is_registered = True
        self._known[entry.name] = entry
        self._metrics.set_adapter(entry.name, in_memory=True)
        if replaced is not None:
            await self._retire(replaced)

    async def _retire(self, entry: AdapterEntry) -> None:
        """Removes an adapter that requests can no longer name, once the running ones have ended."""
        entry.is_registered = False
        if entry.num_users:
            return
        await self._memory.evict(entry)
        if entry.name not in self._known:
            self._metrics.remove_adapter(entry.name)

    async def _wait_until_resident(self, entry: AdapterEntry, record: RequestRecord) -> None:
        remaining_s = record.remaining_s(now_s())
        wait_s = MAX_ADAPTER_WAIT_S if remaining_s is None else remaining_s
        try:
            async with asyncio.timeout(wait_s), self._lock(entry.name):
                await self._read_again(entry, wait_s)
        except (LoadDelayed, TimeoutError) as error:
            if remaining_s is not None and remaining_s <= MAX_ADAPTER_WAIT_S:
                self._metrics.observe_timeout(record, "queued")
                raise deadline_error("queued") from error
            if isinstance(error, LoadDelayed):
                raise RequestError(503, error.message) from error
            raise RequestError(503, "the adapter was not read in time: try again") from error
        except ModelError as error:
            message = f"adapter {entry.name} cannot be read again: {error}"
            raise RequestError(503, message) from error

    async def _read_again(self, entry: AdapterEntry, timeout_s: float) -> None:
        """Reads the weights into memory unless they are there. Call it with the lock of the name."""
        await self._memory.ensure_resident(entry, timeout_s)
        if entry.is_registered:
            self._metrics.set_adapter(entry.name, in_memory=True)
