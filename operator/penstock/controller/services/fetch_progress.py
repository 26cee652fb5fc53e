"""Reads the progress of the fetches of models in the pods of all services, concurrently with reconciles."""

import asyncio
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Protocol

from penstock.clients.kubernetes.informer import Key
from penstock.controller.process.failures import Failures
from penstock.core.formats.addresses import host_port
from penstock.core.observed.children import ObservedState
from penstock.core.observed.fetches import FetchProgress
from penstock.core.observed.pods import ObservedPod
from penstock.core.spec.service import ENGINE_PORT

# Pods of a service that are polled in each pass. All pods of a scale-up fetch the same model.
MAX_PODS = 4
# Time between two passes, in seconds: each change is a reconcile, and a write of the status.
INTERVAL_S = 10.0


class ProgressSource(Protocol):
    """Reads the progress of a pod's fetch; the scraper is one."""

    async def fetch_progress(
        self, namespace: str, pod: str, address: str
    ) -> FetchProgress | None: ...


class FetchProgressReader:
    """Polls the pods that fetch every few seconds, and keeps their last answers.

    Reconciles use these answers: a pod that does not answer delays no reconcile, and answers cause at most
    one reconcile of a service in a pass. changed: called with a service whose progress changed.
    """

    def __init__(
        self, source: ProgressSource, changed: Callable[[Key], None], failures: Failures
    ) -> None:
        self._source, self._changed, self._failures = source, changed, failures
        self._fetching: dict[Key, tuple[ObservedPod, ...]] = {}
        self._known: dict[str, FetchProgress] = {}  # by uid of the pod

    def with_progress(self, key: Key, observed: ObservedState) -> ObservedState:
        """The state of a service with the progress that is known. Its pods are polled from now on."""
        running = tuple(pod for pod in observed.pods if _is_asked(pod))
        if not running:
            self._fetching.pop(key, None)
            return observed
        self._fetching[key] = running
        return replace(observed, pods=tuple(map(self._with_known, observed.pods)))

    async def run(self, services: Callable[[], Container[Key]]) -> None:
        """Poll the pods until cancelled. services: those that exist."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            with self._failures.isolate_errors("fetches"):
                await self.read_all(services())

    async def read_all(self, services: Container[Key]) -> None:
        """Poll the pods that fetch once, concurrently."""
        self._fetching = {key: pods for key, pods in self._fetching.items() if key in services}
        present = {pod.uid for pods in self._fetching.values() for pod in pods}
        self._known = {uid: progress for uid, progress in self._known.items() if uid in present}
        await asyncio.gather(*(self._read_service(*each) for each in self._fetching.items()))

    async def _read_service(self, key: Key, pods: Iterable[ObservedPod]) -> None:
        asked = sorted(pods, key=lambda pod: pod.name)[:MAX_PODS]
        answers = await asyncio.gather(*(self._read(key[0], pod) for pod in asked))
        found = {pod.uid: at for pod, at in zip(asked, answers, strict=True) if at is not None}
        if any(self._known.get(uid) != progress for uid, progress in found.items()):
            self._known |= found
            self._changed(key)

    async def _read(self, namespace: str, pod: ObservedPod) -> FetchProgress | None:
        address = host_port(pod.address, ENGINE_PORT)
        return await self._source.fetch_progress(namespace, pod.name, address)

    def _with_known(self, pod: ObservedPod) -> ObservedPod:
        progress = self._known.get(pod.uid)
        if pod.fetches is None or progress is None or not pod.fetches.running:
            return pod
        return replace(pod, fetches=replace(pod.fetches, progress=progress))


def _is_asked(pod: ObservedPod) -> bool:
    return bool(pod.fetches and pod.fetches.running and pod.address and not pod.is_ending)
