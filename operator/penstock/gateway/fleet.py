"""What the gateway knows: models, their services, and the pods that are ready."""

import asyncio
from dataclasses import dataclass

from penstock.adapters.kube import INFERENCE_SERVICES, PODS, Kube, Object
from penstock.adapters.watch import Key, Mirror
from penstock.core.observed import ObservedPod
from penstock.core.routing import Endpoint
from penstock.core.service import ENGINE_PORT, ROLE_LABEL, SERVE, SERVICE_LABEL


@dataclass(frozen=True, slots=True)
class Service:
    """One InferenceService as routing needs it. weights: percent by revision."""

    key: Key
    served_name: str
    weights: dict[str, int]
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Found:
    service: Service


@dataclass(frozen=True, slots=True)
class Unknown:
    """No service serves the name; `choices` when several do."""

    choices: tuple[str, ...] = ()


class Fleet:
    """Follows services and pods; snapshots are rebuilt per service when something changes."""

    def __init__(self, kube: Kube, namespace: str | None) -> None:
        self._services = Mirror(
            kube, INFERENCE_SERVICES, namespace=namespace, changed=self._service_changed
        )
        self._pods = Mirror(
            kube,
            PODS,
            namespace=namespace,
            selector=f"{ROLE_LABEL}={SERVE}",
            changed=self._pod_changed,
        )
        self._snapshots: dict[Key, Service] = {}
        self._keys_of_pods: dict[Key, Key] = {}
        self._changed = asyncio.Event()

    @property
    def is_synced(self) -> bool:
        return self._services.synced.is_set() and self._pods.synced.is_set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._services.run())
            group.create_task(self._pods.run())

    async def changed(self) -> None:
        """Until the next change of anything."""
        await self._changed.wait()

    def models(self) -> list[tuple[str, Key]]:
        """Every name that can be asked for, and who serves it."""
        return [
            (f"{s.key[0]}/{s.served_name}" if self._is_ambiguous(s) else s.served_name, s.key)
            for s in sorted(self._snapshots.values(), key=lambda s: (s.served_name, s.key))
        ]

    def resolve(self, model: str) -> Found | Unknown:
        """By served name, or namespace/name where several namespaces serve it."""
        namespace, _, name = model.rpartition("/")
        matches = [
            s
            for s in self._snapshots.values()
            if s.served_name == name and namespace in ("", s.key[0])
        ]
        # Of two services in one namespace that claim a name, the one with traffic has it.
        carrying = [s for s in matches if s.weights] or matches
        if len({s.key[0] for s in carrying}) == 1:
            return Found(carrying[0])
        return Unknown(tuple(sorted(f"{s.key[0]}/{s.served_name}" for s in matches)))

    def snapshot(self, key: Key) -> Service | None:
        """The service as it is now; None when it is gone."""
        return self._snapshots.get(key)

    def _is_ambiguous(self, service: Service) -> bool:
        return any(
            s.served_name == service.served_name and s.key[0] != service.key[0]
            for s in self._snapshots.values()
        )

    def _service_changed(self, key: Key) -> None:
        self._rebuild(key)

    def _pod_changed(self, key: Key) -> None:
        pod = self._pods.get(key)
        if pod is not None:
            self._keys_of_pods[key] = (key[0], pod["metadata"]["labels"].get(SERVICE_LABEL, ""))
            self._rebuild(self._keys_of_pods[key])
        elif key in self._keys_of_pods:
            self._rebuild(self._keys_of_pods.pop(key))

    def _rebuild(self, key: Key) -> None:
        body = self._services.get(key)
        if body is None:
            self._snapshots.pop(key, None)
        else:
            self._snapshots[key] = _snapshot(key, body, list(self._pods))
        self._changed.set()
        self._changed = asyncio.Event()


def _snapshot(key: Key, body: Object, pods: list[Object]) -> Service:
    endpoints = []
    for pod in pods:
        metadata = pod["metadata"]
        if (metadata["namespace"], metadata["labels"].get(SERVICE_LABEL)) != key:
            continue
        seen = ObservedPod.of(pod)
        if seen.is_ready and not seen.is_ending:
            endpoints.append(Endpoint(seen.name, f"{seen.address}:{ENGINE_PORT}", seen.revision))
    traffic = body.get("status", {}).get("traffic", [])
    return Service(
        key=key,
        served_name=body["spec"]["model"].get("servedName", key[1]),
        weights={target["revision"]: target["weight"] for target in traffic if target["weight"]},
        endpoints=tuple(endpoints),
    )
