"""Asks the engines of services with adapters which adapters they have.

Once a second; more often while requests wait for a copy, which may be loaded by somebody else. Less often if
the lists of a namespace would take more than their share of the event loop.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.clients.pods.engine_adapters import AdapterList, EngineAdapters, EngineFailure
from penstock.core.observed.lora_engine import LoraRuntime
from penstock.core.routing.pick import Endpoint
from penstock.gateway.adapters.residency import AdapterResidency
from penstock.gateway.snapshots.snapshot import Snapshot

logger = logging.getLogger(__name__)

# Interval between two lists of an engine.
POLL_INTERVAL_S = 1.0
WAITING_INTERVAL_S = 0.2
# Lists to request in turn, by the runtime that the pod's command names or that answered last. An engine of
# another image may have only the list of vLLM.
RUNTIMES: Mapping[LoraRuntime, tuple[LoraRuntime, ...]] = {
    "Penstock": ("Penstock", "VLLM"),
    "VLLM": ("VLLM",),
}


@dataclass(slots=True)
class _Waiting:
    """Requests of a service that wait for a copy of an adapter."""

    count: int = 0
    has_any: asyncio.Event = field(default_factory=asyncio.Event)


class AdapterPolls:
    """Asks each endpoint of the services with adapters in a task of its own, so that none delays another.

    engines: with the clock of the residency.
    """

    def __init__(self, engines: EngineAdapters, residency: AdapterResidency) -> None:
        self._engines = engines
        self._residency = residency
        self._tasks: dict[Endpoint, asyncio.Task[None]] = {}
        self._runtimes: dict[str, LoraRuntime] = {}
        self._last: dict[str, AdapterList] = {}  # by pod
        self._waiting: dict[str, _Waiting] = {}  # by service

    def update(self, snapshot: Snapshot) -> None:
        """Poll the endpoints of the snapshot, and no others."""
        wanted = {
            endpoint: (service.key, service.lora_engines[endpoint.pod].runtime)
            for service in snapshot.services_with_adapters
            for endpoint in service.endpoints
            if endpoint.pod in service.lora_engines
        }
        for endpoint in self._tasks.keys() - wanted.keys():
            self._tasks.pop(endpoint).cancel()
        for endpoint in wanted.keys() - self._tasks.keys():
            service, self._runtimes[endpoint.pod] = wanted[endpoint]
            run = self._poll(endpoint, self._waiting.setdefault(service, _Waiting()))
            self._tasks[endpoint] = asyncio.get_running_loop().create_task(run)
        services = {service for service, _ in wanted.values()}
        self._waiting = {
            service: waiting
            for service, waiting in self._waiting.items()
            if waiting.count or service in services
        }
        pods = {endpoint.pod: service for endpoint, (service, _) in wanted.items()}
        self._residency.update(pods)
        self._runtimes = {pod: found for pod, found in self._runtimes.items() if pod in pods}
        self._last = {pod: last for pod, last in self._last.items() if pod in pods}

    def runtime(self, pod: str) -> LoraRuntime:
        """The runtime whose list of adapters the engine has."""
        return self._runtimes.get(pod, "Penstock")

    @contextmanager
    def wait(self, service: str) -> Iterator[None]:
        """Ask the engines of the service "namespace/name" more often while the block runs."""
        waiting = self._waiting.setdefault(service, _Waiting())
        waiting.count += 1
        waiting.has_any.set()
        try:
            yield
        finally:
            waiting.count -= 1
            if not waiting.count:
                waiting.has_any.clear()

    async def close(self) -> None:
        """End all polls."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def _poll(self, endpoint: Endpoint, waiting: "_Waiting") -> None:
        is_answering = True
        while True:
            error = None
            try:
                failure = await self._ask(endpoint)
            except Exception as unexpected:  # noqa: BLE001 - the engine's next list may cause none
                error = unexpected
                failure = EngineFailure("Unanswered", "Unanswered", f"unexpected error: {error!r}")
            if failure is not None and is_answering:
                logger.warning(
                    "%s does not list its adapters: %s",
                    endpoint.pod,
                    failure.message,
                    exc_info=error,
                )
            is_answering = failure is None
            await asyncio.sleep(min(WAITING_INTERVAL_S, POLL_INTERVAL_S))
            jitter = 0.9 + 0.2 * random.random()  # noqa: S311 - spreads load
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, POLL_INTERVAL_S * jitter - WAITING_INTERVAL_S)):
                    await waiting.has_any.wait()

    async def _ask(self, endpoint: Endpoint) -> EngineFailure | None:
        """Ask an engine once, in the way of the other runtime if it does not know the first."""
        pod, namespace = endpoint.pod, endpoint.pod.partition("/")[0]
        failure = None
        for runtime in RUNTIMES[self.runtime(pod)]:
            last = self._last.get(pod)
            answer = await self._engines.list(namespace, endpoint.address, runtime, last)
            if not isinstance(answer, EngineFailure):
                self._runtimes[pod], self._last[pod] = runtime, answer
                with self._engines.share.counted(namespace):
                    self._residency.note_list(pod, answer.copies, answer.asked_s)
                return None
            failure = answer
            if failure.kind != "Refused":
                break
        return failure
