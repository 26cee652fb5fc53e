"""Loads and unloads adapters on engines, in the background: one change at a time on each pod."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.clients.engine_adapters import EngineAdapters, EngineFailure
from penstock.clients.informer import Key
from penstock.controller.failures import Failures
from penstock.controller.lora_pods import LoraPod
from penstock.core.adapters.place_slots import LOADING
from penstock.core.adapters.replica import Copy

# Changes that run at the same time, on all pods together.
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
        self._locks: dict[Key, asyncio.Lock] = {}
        self._running = asyncio.Semaphore(MAX_RUNNING)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, change: Change) -> None:
        """Carry out a change after the earlier ones on its pod."""
        of_pod = self._changes.setdefault(change.pod.key, {})
        of_pod[change.engine_name] = change
        task = asyncio.create_task(self._run(change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget_done(self) -> None:
        """Forget the changes that are done. Call it before engines are asked for their lists."""
        for key, of_pod in list(self._changes.items()):
            unfinished = {name: each for name, each in of_pod.items() if each.state != "Done"}
            if unfinished:
                self._changes[key] = unfinished
            else:
                del self._changes[key]
                self._locks.pop(key, None)

    def of_pod(self, pod: Key) -> Mapping[str, Change]:
        """The changes on a pod that are not forgotten, by the adapter's name."""
        return self._changes.get(pod, {})

    def expected(self, pod: Key, listed: Mapping[str, Copy]) -> dict[str, Copy]:
        """The copies of a pod, as its list and the changes on it say."""
        copies = dict(listed)
        for name, change in self.of_pod(pod).items():
            if change.kind == "unload":
                if change.failure is None:
                    copies.pop(name, None)
            elif change.state != "Done":
                copies.setdefault(name, LOADING)
            elif change.failure is None:
                copies.setdefault(name, Copy("Resident"))
        return copies

    async def close(self) -> None:
        """Cancel the changes that run, and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, change: Change) -> None:
        lock = self._locks.setdefault(change.pod.key, asyncio.Lock())
        async with lock, self._running:
            change.state = "Running"
            change.failure = UNEXPECTED
            with self._failures.isolate_errors("adapters", "/".join(change.pod.key)):
                change.failure = await self._apply(change)
            change.state = "Done"
        self._finished(change)

    async def _apply(self, change: Change) -> EngineFailure | None:
        pod, name = change.pod, change.engine_name
        if change.kind == "unload":
            return await self._engines.unload(pod.address, name)
        return await self._engines.load(pod.address, pod.engine.runtime, name, change.path)
