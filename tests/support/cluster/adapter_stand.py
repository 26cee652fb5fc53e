"""A service with engines that only have the adapter routes, and its adapters at a real API server."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest import mock

from tests.support.cluster.adapter_engine import AdapterEngine, adapter_engine
from tests.support.cluster.manifests import adapter_manifest

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Informer, Key, key_of
from penstock.clients.kubernetes.resources import EVENTS, INFERENCE_SERVICES, LORA_ADAPTERS
from penstock.clients.machine.clock import unix_time
from penstock.clients.pods.engine_adapters import EngineAdapters
from penstock.controller.adapters import placer
from penstock.controller.adapters.placer import AdapterPlacer
from penstock.controller.adapters.rollouts import RolloutSources
from penstock.controller.adapters.sources import Sources
from penstock.controller.canary.judge import Judgement
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.process.settings import Settings
from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import AdapterCounts
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.name_claims import (
    adapter_claim,
    route_claim,
    service_claim,
)
from penstock.core.observed.name_index import NameIndex
from penstock.core.runtimes.paths import ADAPTER_CACHE_MOUNT
from penstock.core.spec.service import (
    ENGINE_PORT,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVE,
    SERVICE_LABEL,
)

SERVICE = "chat"


def uri_of(name: str) -> str:
    return f"pvc://adapters/{name}"


def engine_name(name: str, uri: str | None = None) -> str:
    return AdapterVersion(name, uri or uri_of(name)).engine_name


class CountingPlacer(AdapterPlacer):
    """A placer that counts the passes that have ended."""

    num_passes = 0

    async def tick(self) -> bool:
        is_changing = await super().tick()
        self.num_passes += 1
        return is_changing


class AdapterStand:
    """The placer with what it reads. services, pods, routes, counts, judgements, applied: changed by tests.

    engines: by the pod's name. failures: of the placer; a test fails if it counts any.
    """

    def __init__(self, kube: Kube, namespace: str, stack: AsyncExitStack) -> None:
        self.kube, self.namespace, self.key = kube, namespace, (namespace, SERVICE)
        self._stack = stack
        self.services: dict[Key, Object] | None = {self.key: self.service()}
        self.routes: list[Object] = []
        self.pods: dict[str, Object] = {}
        self.engines: dict[str, AdapterEngine] = {}
        self.counts: dict[str, AdapterCounts] = {}
        self.judgements: dict[tuple[Key, str], Judgement] = {}
        self.applied: dict[str, int | None] = {}
        self.metrics = OperatorMetrics()
        self.clients = EngineAdapters()
        self.placer: CountingPlacer | None = None
        self._watched: Informer | None = None
        self.fetch_pods: Iterable[Object] = ()  # that fetch adapters

    def service(self, name: str = SERVICE, **spec: Any) -> Object:
        engine = {"lora": {"maxAdapters": 4, "sources": ["pvc://adapters"]}}
        return {
            "apiVersion": "serving.penstock.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {
                "name": name, "namespace": self.namespace, "uid": name, "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"model": {"uri": "pvc://models"}, "engine": engine} | spec,
        }  # fmt: skip

    async def start_placer(self) -> None:
        """Start an operator's placer, in place of the one that runs."""
        await self.stop_placer()
        sources = Sources(
            services=self._all_services,
            routes=lambda: self.routes,
            names=self._names,
            children=lambda: ([], [*self.pods.values(), *self.fetch_pods]),
            counts=lambda _: self.counts,
            rollouts=RolloutSources(
                judgement=lambda key, trial: self.judgements.get((key, trial)),
                applied_generations=lambda _: self.applied,
            ),
        )
        settings = Settings(
            identity="test", engine_image="engine:1", namespace=self.namespace, host="127.0.0.1", port=0,
            watch_namespace=self.namespace,
        )  # fmt: skip
        self.placer = CountingPlacer(
            self.kube, self.clients, sources, Failures(self.metrics), settings
        )
        self._running = asyncio.create_task(self.placer.run())

    async def watch_services(self) -> None:
        """Create the service at the API server, and watch all services there from now on."""
        body = self.service()
        del body["metadata"]["uid"], body["metadata"]["creationTimestamp"]
        await self.kube.create(INFERENCE_SERVICES, self.namespace, body)
        self._watched = Informer(
            self.kube, INFERENCE_SERVICES, namespace=self.namespace, changed=lambda _: None
        )
        watching = asyncio.create_task(self._watched.run())
        self._stack.callback(watching.cancel)
        await self._watched.synced.wait()
        await self.set_traffic(SERVICE)

    async def set_traffic(self, service: str) -> None:
        """Write a status as of a service with engines that answer."""
        await self.set_conditions(service, TrafficAvailable=("True", ""))

    async def set_conditions(self, service: str, **conditions: tuple[str, str]) -> None:
        """Write a service's conditions, (status, message) by type."""
        bodies = [
            {
                "type": kind, "status": status, "reason": "Test", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind, (status, message) in conditions.items()
        ]  # fmt: skip
        await self.kube.merge(
            INFERENCE_SERVICES, self.namespace, service, {"status": {"conditions": bodies}},
            manager="test", sub="status",
        )  # fmt: skip

    def _names(self) -> NameIndex:
        """The model names of the present objects."""
        adapters = () if self.placer is None else self.placer.adapters or ()
        claims = (
            *map(route_claim, self.routes or ()),
            *map(service_claim, (self._all_services() or {}).values()),
            *map(adapter_claim, adapters),
        )
        return NameIndex(claim for claim in claims if claim is not None)

    def _all_services(self) -> dict[Key, Object] | None:
        if self._watched is None or self.services is None:
            return self.services
        return {key_of(each): each for each in self._watched}

    async def stop_placer(self) -> None:
        if self.placer is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self.placer = None

    async def add_engine(
        self, name: str, slots: int = 4, service: str = SERVICE, cache: str = ""
    ) -> AdapterEngine:
        """Start an engine of the service in a pod. Returns it. cache: claim that it reads adapters from."""
        host = "127." + ".".join(str(1 + secrets.randbelow(250)) for _ in range(3))
        engine = await self._stack.enter_async_context(adapter_engine(host, ENGINE_PORT))
        self.engines[name], self.pods[name] = engine, self._pod(name, host, slots, service)
        if cache:
            spec = self.pods[name]["spec"]
            mount = {"name": "cache", "mountPath": ADAPTER_CACHE_MOUNT, "readOnly": True}
            spec["containers"][0]["volumeMounts"] = [mount]
            spec["volumes"] = [{"name": "cache", "persistentVolumeClaim": {"claimName": cache}}]
        return engine

    async def create(self, name: str, **spec: Any) -> Object:
        body = adapter_manifest(name, SERVICE, uri_of(name), **spec)
        return await self.kube.create(LORA_ADAPTERS, self.namespace, body)

    async def change(self, name: str, **spec: Any) -> None:
        await self.kube.merge(LORA_ADAPTERS, self.namespace, name, {"spec": spec}, manager="test")

    async def get(self, name: str) -> Object:
        return await self.kube.get(LORA_ADAPTERS, self.namespace, name)

    async def version(self, name: str) -> str:
        return str((await self.get(name))["metadata"]["resourceVersion"])

    async def until(self, name: str, timeout_s: int = 15, **reasons: str) -> Object:
        """Wait until conditions of an adapter have these reasons. Returns its status."""
        status: Object = {}
        for _ in range(timeout_s * 20):
            status = (await self.get(name)).get("status", {})
            found = {c["type"]: c["reason"] for c in status.get("conditions", [])}
            if found.items() >= reasons.items():
                return status
            await asyncio.sleep(0.05)
        raise AssertionError(status)

    async def until_instances(
        self, name: str, instances: list[Object], timeout_s: int = 15
    ) -> None:
        """Wait until the status of an adapter has these instances."""
        found: list[Object] = []
        for _ in range(timeout_s * 20):
            found = (await self.get(name)).get("status", {}).get("instances", [])
            if found == instances:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(found)

    async def until_true(self, holds: Callable[[], bool], timeout_s: int = 15) -> None:
        """Wait until a condition on the engines holds."""
        for _ in range(timeout_s * 20):
            if holds():
                return
            await asyncio.sleep(0.05)
        raise AssertionError([(each.entries, each.calls) for each in self.engines.values()])

    async def passes(self, number: int = 4) -> None:
        """Wait until so many more passes have ended, the first of which may run already."""
        assert self.placer is not None
        last = self.placer.num_passes + number
        await self.until_true(lambda: self.placer is not None and self.placer.num_passes >= last)

    async def events(self, name: str) -> set[tuple[str, str]]:
        """(type, reason) of an adapter's Events."""
        found, _ = await self.kube.list(EVENTS, self.namespace)
        return {
            (each["type"], each["reason"])
            for each in found
            if each["involvedObject"]["name"] == name
        }

    async def until_event(self, name: str, kind: str, reason: str, timeout_s: int = 15) -> None:
        """Wait until an adapter has an Event: it is written after the status."""
        for _ in range(timeout_s * 20):
            if (kind, reason) in (found := await self.events(name)):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(found)

    def num_errors(self) -> float:
        """Unexpected errors of the placer."""
        return float(self.metrics.unexpected_errors.labels("adapters")._value.get())

    def _pod(self, name: str, host: str, slots: int, service: str) -> Object:
        labels = {SERVICE_LABEL: service, REVISION_LABEL: "a" * 8, ROLE_LABEL: SERVE}
        args = ["serve", "/models", "--enable-lora", f"--max-loras={slots}"]
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"}
        return {
            "metadata": {
                "name": name, "namespace": self.namespace, "uid": name, "labels": labels,
                "creationTimestamp": timestamp(unix_time() + 1),
            },
            "spec": {"containers": [{"name": "engine", "args": args}]},
            "status": {"podIP": host, "phase": "Running", "conditions": [ready]},
        }  # fmt: skip


@asynccontextmanager
async def adapter_stand(kube: Kube, namespace: str) -> AsyncIterator[AdapterStand]:
    """A stand whose placer runs, until the block ends. Raises AssertionError if it had unexpected errors.

    Its passes follow each other more quickly than an operator's.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(
            mock.patch.multiple(placer, TICK_S=0.3, CHANGING_TICK_S=0.15, MIN_PAUSE_S=0.05)
        )
        stand = AdapterStand(kube, namespace, stack)
        await stand.start_placer()
        try:
            yield stand
        finally:
            await stand.stop_placer()
            await stand.clients.close()
        assert stand.num_errors() == 0
