"""Loads adapters on engines for requests that wait for them: one load for all of these requests.

An engine that refuses a version is not asked again before its back-off is over. Neither is any engine of a
revision after two loads that broke off: the version may end the engines that load it. A load goes on when the
requests that wait for it have left.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.clients.machine.logs import fields
from penstock.clients.pods.engine_adapters import EngineAdapters, EngineFailure
from penstock.core.routing.pick import Endpoint
from penstock.gateway.adapters.failures import AdapterFailures
from penstock.gateway.adapters.polls import AdapterPolls
from penstock.gateway.adapters.residency import AdapterResidency
from penstock.gateway.snapshots.adapter import Adapter

logger = logging.getLogger(__name__)

# Called with the adapter and the seconds of each load, and whether it failed.
ObserveLoad = Callable[[Adapter, float, bool], None]


@dataclass(frozen=True, slots=True)
class AdapterLoad:
    """A load to do. evict: adapter that is unloaded before; None: none."""

    adapter: Adapter
    endpoint: Endpoint
    evict: str | None = None


class AdapterLoads:
    """The loads of one gateway. now: the monotonic clock. failures: what is not tried again yet."""

    def __init__(
        self,
        engines: EngineAdapters,
        residency: AdapterResidency,
        polls: AdapterPolls,
        failures: AdapterFailures,
        observe: ObserveLoad,
        now: Callable[[], float],
    ) -> None:
        self._engines = engines
        self._residency = residency
        self._polls = polls
        self._failures = failures
        self._observe = observe
        self._now = now
        self._tasks: dict[tuple[str, str], asyncio.Task[EngineFailure | None]] = {}

    async def load(self, load: AdapterLoad) -> EngineFailure | None:
        """Load an adapter, or wait for the same load if it runs already. None: the engine has it now."""
        key = load.endpoint.pod, load.adapter.engine_name
        task = self._tasks.get(key)
        if task is None:
            self._residency.start_loading(*key)
            task = self._tasks[key] = asyncio.get_running_loop().create_task(self._run(load))
            task.add_done_callback(lambda _: self._tasks.pop(key))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel all loads."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, load: AdapterLoad) -> EngineFailure | None:
        adapter, endpoint, started_s = load.adapter, load.endpoint, self._now()
        is_loaded = False
        try:
            failure = await self._load(load)
            is_loaded = failure is None
        finally:
            self._residency.end_loading(endpoint.pod, adapter.engine_name, is_loaded=is_loaded)
        self._observe(adapter, self._now() - started_s, failure is not None)
        if failure is None:
            self._failures.note_success(adapter, endpoint)
            return None
        logger.warning(
            "%s did not load %s: %s", endpoint.pod, adapter.engine_name, failure.message,
            extra=fields(service=adapter.service),
        )  # fmt: skip
        self._failures.note_failure(adapter, endpoint, failure)
        if failure.kind == "Refused":  # all get this answer, or try another engine
            self._residency.waiters.wake_all(adapter.service, adapter.engine_name)
        return failure

    async def _load(self, load: AdapterLoad) -> EngineFailure | None:
        endpoint, version = load.endpoint, load.adapter.version
        address, runtime = endpoint.address, self._polls.runtime(endpoint.pod)
        if load.evict is not None:
            # First, so that no request is sent to a copy that goes. If it stays, the next list has it.
            self._residency.note_absent(endpoint.pod, load.evict)
            failure = await self._engines.unload(address, load.evict)
            if failure is not None:
                return replace(failure, kind="Busy")  # the adapter to load is not to blame
        namespace, name = load.adapter.namespace, load.adapter.engine_name
        return await self._engines.load(namespace, address, runtime, name, version.engine_path)
