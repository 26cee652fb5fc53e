"""Copies of adapters on engines, as the engines list them."""

import asyncio
from collections.abc import Iterable, Mapping

from penstock.clients.clock import monotonic
from penstock.clients.engine_adapters import Copies, EngineAdapters, EngineFailure
from penstock.clients.informer import Key
from penstock.controller.lora_pods import LoraPod

# Engines that are asked at the same time.
MAX_REQUESTS = 64
# Time for which the last list of an engine counts that accepts connections and does not answer: a long step
# delays its answer. In seconds.
MAX_AGE_S = 10.0


class Residency:
    """Polls engines, and keeps the last list of each."""

    def __init__(self, engines: EngineAdapters) -> None:
        self._engines = engines
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._last: dict[Key, tuple[float, Copies]] = {}

    async def poll(self, pods: Iterable[LoraPod]) -> Mapping[Key, Copies]:
        """Ask all these pods. Returns the copies by pod; a pod whose copies are unknown is left out."""
        pods = list(pods)
        answers = await asyncio.gather(*map(self._ask, pods))
        now_s = monotonic()
        last = self._last
        self._last = {}
        for pod, answer in zip(pods, answers, strict=True):
            if not isinstance(answer, EngineFailure):
                self._last[pod.key] = now_s, answer
            elif answer.kind != "Unreachable" and pod.key in last:
                at_s, copies = last[pod.key]
                if now_s - at_s <= MAX_AGE_S:
                    self._last[pod.key] = at_s, copies
        return {key: copies for key, (_, copies) in self._last.items()}

    async def _ask(self, pod: LoraPod) -> Copies | EngineFailure:
        async with self._slots:
            return await self._engines.list(pod.address, pod.engine.runtime)
