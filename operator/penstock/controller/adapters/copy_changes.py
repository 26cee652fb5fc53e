"""Loads and unloads adapters on engines, in the background."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

from penstock.clients.kubernetes.informer import Key
from penstock.clients.pods.engine_adapters import EngineAdapters, EngineFailure
from penstock.clients.pods.shared_slots import SharedSlots
from penstock.controller.adapters.lora_pods import LoraPod
from penstock.controller.process.failures import Failures
from penstock.core.adapters.place_slots import LOADING
from penstock.core.adapters.replica import Copy

# Changes that run at the same time, on all pods together. Each is an open request that may last minutes. With
# 64, six namespaces whose engines hang leave one to a seventh.
MAX_RUNNING = 64

UNEXPECTED = EngineFailure("Unanswered", "Unanswered", "the operator failed; its log says how")


@dataclass(slots=True)
class Change:
    """A load or an unload. path: the adapter's folder, of a load. state: Done also if it failed."""

    kind: Literal["load", "unload"]
    pod: LoraPod
    engine_name: str
    path: str = ""
    state: Literal["Waiting", "Running", "Done"] = "Waiting"
    failure: EngineFailure | None = None


class CopyChanges:
    """Changes that were started, and that the engines' lists may not show yet.

    finished: called with each change when it is done.
    """

    def __init__(
        self, engines: EngineAdapters, failures: Failures, finished: Callable[[Change], None]
    ) -> None:
        self._engines = engines
        self._failures = failures
        self._finished = finished
        self._changes: dict[Key, dict[str, Change]] = {}
        self._unloads: dict[Key, set[asyncio.Task[None]]] = {}
        self._pod_slots: dict[Key, asyncio.Semaphore] = {}
        self._running = SharedSlots(MAX_RUNNING)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, change: Change) -> None:
        """Carry out a change. A load begins after the earlier unloads on its pod, which make room for it."""
        pod = change.pod.key
        self._changes.setdefault(pod, {})[change.engine_name] = change
        unloads = self._unloads.setdefault(pod, set())
        earlier = set(unloads) if change.kind == "load" else set()
        task = asyncio.create_task(self._run(change, earlier))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if change.kind == "unload":
            unloads.add(task)
            task.add_done_callback(unloads.discard)

    def forget_done(self) -> None:
        """Forget the changes that are done. To be called before engines are polled."""
        for key, of_pod in list(self._changes.items()):
            unfinished = {name: each for name, each in of_pod.items() if each.state != "Done"}
            if unfinished:
                self._changes[key] = unfinished
            else:
                for of_pods in (self._changes, self._unloads, self._pod_slots):
                    of_pods.pop(key, None)

    def of_pod(self, pod: Key) -> Mapping[str, Change]:
        """The changes on a pod that are not forgotten, by the adapter's name."""
        return self._changes.get(pod, {})

    def expected(self, pod: Key, listed: Mapping[str, Copy]) -> dict[str, Copy]:
        """The copies of a pod, as its list and the changes on it say."""
        copies = dict(listed)
        for name, change in self.of_pod(pod).items():
            is_done = change.state == "Done"
            if is_done and change.failure is not None:
                continue
            if change.kind == "unload":
                copies.pop(name, None)
            else:
                copies.setdefault(name, Copy("Resident") if is_done else LOADING)
        return copies

    async def close(self) -> None:
        """Cancel the changes that run, and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, change: Change, earlier: set[asyncio.Task[None]]) -> None:
        if earlier:
            await asyncio.wait(earlier)
        async with self._slot(change), self._running.hold(change.pod.namespace):
            change.state = "Running"
            change.failure = UNEXPECTED
            with self._failures.isolate_errors("adapters", *change.pod.key):
                change.failure = await self._apply(change)
            change.state = "Done"
        self._finished(change)

    def _slot(self, change: Change) -> AbstractAsyncContextManager[None]:
        """The slot that a change holds while it runs. Unloads need none: running loads may wait for them."""
        if change.kind == "unload":
            return nullcontext()
        pod = change.pod
        return self._pod_slots.setdefault(pod.key, asyncio.Semaphore(pod.engine.loads_at_once))

    async def _apply(self, change: Change) -> EngineFailure | None:
        pod, name = change.pod, change.engine_name
        if change.kind == "unload":
            return await self._engines.unload(pod.address, name)
        runtime = pod.engine.runtime
        return await self._engines.load(pod.namespace, pod.address, runtime, name, change.path)
