"""Copies of adapters on engines, as the engines list them."""

import asyncio
from collections.abc import Iterable, Mapping

from penstock.clients.kubernetes.informer import Key
from penstock.clients.machine.clock import monotonic
from penstock.clients.pods.engine_adapters import AdapterList, Copies, EngineAdapters, EngineFailure
from penstock.controller.adapters.lora_pods import LoraPod
from penstock.controller.process.failures import Failures

# Time that a poll waits for answers, in seconds. Later ones count at the next poll, so that a slow engine
# delays nothing on the others.
MAX_WAIT_S = 0.5
# Time for which the last list of an engine counts that accepts connections and does not answer: a long step
# delays its answer. In seconds.
MAX_AGE_S = 10.0

_Answer = AdapterList | EngineFailure


class Residency:
    """Polls engines, and keeps the last list of each.

    An error about one engine is contained by `failures`, and counts like no answer.
    """

    def __init__(self, engines: EngineAdapters, failures: Failures) -> None:
        self._engines = engines
        self._failures = failures
        self._requests: dict[Key, asyncio.Task[_Answer]] = {}
        self._last: dict[Key, AdapterList] = {}

    async def poll(self, pods: Iterable[LoraPod]) -> Mapping[Key, Copies]:
        """Ask all these pods. Returns the copies by pod; a pod whose copies are unknown is left out."""
        wanted = {pod.key: pod for pod in pods}
        for key in self._requests.keys() - wanted.keys():
            self._requests.pop(key).cancel()
        for key in wanted.keys() - self._requests.keys():
            self._requests[key] = asyncio.create_task(self._ask(wanted[key]))
        if self._requests:
            await asyncio.wait(self._requests.values(), timeout=MAX_WAIT_S)
        now_s = monotonic()
        for key, request in list(self._requests.items()):
            if request.done():
                del self._requests[key]
                with self._failures.isolate_errors("adapters", *key):
                    self._note(key, request.result())
        self._last = {
            key: last
            for key, last in self._last.items()
            if key in wanted and now_s - last.asked_s <= MAX_AGE_S
        }
        return {key: last.copies for key, last in self._last.items()}

    async def close(self) -> None:
        """Cancel the requests that run, and wait for their end."""
        for request in self._requests.values():
            request.cancel()
        await asyncio.gather(*self._requests.values(), return_exceptions=True)

    def _note(self, key: Key, answer: _Answer) -> None:
        if not isinstance(answer, EngineFailure):
            self._last[key] = answer
        elif answer.kind == "Unreachable":
            self._last.pop(key, None)

    async def _ask(self, pod: LoraPod) -> _Answer:
        last = self._last.get(pod.key)
        return await self._engines.list(pod.namespace, pod.address, pod.engine.runtime, last)
