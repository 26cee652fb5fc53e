"""What there is to send requests to: an immutable picture, replaced at each change."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.adapters.kube import INFERENCE_SERVICES, PODS, Kube, Object
from penstock.adapters.watch import Key, Mirror
from penstock.core.quantity import parse_duration_s
from penstock.core.routing import Endpoint, Side
from penstock.core.rule import Objectives
from penstock.core.service import (
    COHORT_LABEL,
    ENGINE_PORT_NAME,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVE,
    SERVICE_LABEL,
)
from penstock.core.stickiness import STICKY_BY, StickyBy
from penstock.core.timestamps import parse_timestamp


@dataclass(frozen=True, slots=True)
class Service:
    """One InferenceService. weights: the share of each side, from its status. sides: of each engine
    pod that is there, ready or not."""

    namespace: str
    name: str
    served_name: str
    created_s: int
    weights: Mapping[Side, int]
    endpoints: tuple[Endpoint, ...]
    objectives: Objectives | None = None
    sides: Mapping[str, Side] = field(default_factory=dict)
    sticky_by: StickyBy = "None"

    @property
    def is_mixed(self) -> bool:
        """Whether there is anything to compare."""
        return len(set(self.sides.values())) > 1

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def full_name(self) -> str:
        """What to call its model when another namespace serves the same name."""
        return f"{self.namespace}/{self.served_name}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing is served under the name."""


@dataclass(frozen=True, slots=True)
class Ambiguous:
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """services: oldest first; of two that claim one name in one namespace the older has it."""

    services: tuple[Service, ...] = ()
    _by_model: dict[str, tuple[Service, ...]] = field(init=False, repr=False, compare=False)
    _by_key: dict[str, Service] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_model: dict[str, tuple[Service, ...]] = {}
        for service in self.services:
            if service.full_name not in by_model:
                by_model[service.full_name] = (service,)
                others = by_model.get(service.served_name, ())
                by_model[service.served_name] = (*others, service)
        object.__setattr__(self, "_by_model", by_model)
        object.__setattr__(self, "_by_key", {service.key: service for service in self.services})

    def resolve(self, model: str) -> Service | Unknown | Ambiguous:
        """`model` is a served name, or "namespace/name"."""
        found = self._by_model.get(model, ())
        if len(found) > 1:
            return Ambiguous(tuple(service.full_name for service in found))
        return found[0] if found else Unknown()

    def get(self, key: str) -> Service | None:
        return self._by_key.get(key)

    def models(self) -> list[tuple[str, Service]]:
        """Each model once, under the name that it must be called by."""
        return [
            (name if len(named) == 1 else service.full_name, service)
            for name, named in self._by_model.items()
            if "/" not in name
            for service in named
        ]


class Fleet:
    """The current snapshot, and a way to wait for the next."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.is_synced = False
        self._changed = asyncio.Event()

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the picture, and wake whoever waits when it differs."""
        if self.is_synced and snapshot == self.snapshot:
            return
        self.snapshot, self.is_synced = snapshot, True
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, timeout_s: float) -> bool:
        """True at the next change, False when there was none in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._changed.wait()
        except TimeoutError:
            return False

    async def follow(self, kube: Kube, namespace: str | None) -> None:
        """Keep the picture as the API server has it. Until cancelled."""
        loop = asyncio.get_running_loop()
        is_due = False

        def changed(_: Key) -> None:
            nonlocal is_due
            if not is_due:  # one picture for all events that came together
                is_due = True
                loop.call_soon(draw)

        def draw() -> None:
            nonlocal is_due
            is_due = False
            if services.synced.is_set() and pods.synced.is_set():
                self.publish(build(services, pods))

        selector = f"{SERVICE_LABEL},{ROLE_LABEL}={SERVE}"
        services = Mirror(kube, INFERENCE_SERVICES, namespace=namespace, changed=changed)
        pods = Mirror(kube, PODS, namespace=namespace, selector=selector, changed=changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(services.run())
            group.create_task(pods.run())
            await services.synced.wait()
            await pods.synced.wait()
            draw()  # also when there is nothing yet


def build(services: Iterable[Object], pods: Iterable[Object]) -> Snapshot:
    """InferenceServices and engine pods, as the API server has them -> the picture."""
    engines: dict[Key, list[Object]] = {}
    for pod in pods:
        metadata = pod["metadata"]
        key = metadata["namespace"], metadata["labels"][SERVICE_LABEL]
        engines.setdefault(key, []).append(pod)
    drawn = [_service(body, engines) for body in services]
    return Snapshot(tuple(sorted(drawn, key=lambda service: (service.created_s, service.key))))


def _service(body: Object, engines: Mapping[Key, list[Object]]) -> Service:
    metadata, spec, status = body["metadata"], body["spec"], body.get("status", {})
    namespace, name = metadata["namespace"], metadata["name"]
    pods = engines.get((namespace, name), [])
    endpoints = [endpoint for pod in pods if (endpoint := _endpoint(pod)) is not None]
    return Service(
        namespace=namespace,
        name=name,
        served_name=status.get("servedName") or spec["model"].get("servedName") or name,
        created_s=int(parse_timestamp(metadata["creationTimestamp"])),
        weights={
            Side(target["revision"], target.get("cohort", "")): target["weight"]
            for target in status.get("traffic", [])
        },
        endpoints=tuple(sorted(endpoints, key=lambda e: e.pod)),
        objectives=_objectives(spec.get("objectives")),
        sides={_name(pod): _side(pod) for pod in pods},
        sticky_by=_sticky_by(spec),
    )


def _sticky_by(spec: Object) -> StickyBy:
    """A word that this gateway does not know keeps nothing."""
    wanted = spec.get("rollout", {}).get("canary", {}).get("stickyBy", "None")
    return next((by for by in STICKY_BY if by == wanted), "None")


def _objectives(wanted: Object | None) -> Objectives | None:
    if wanted is None:
        return None
    return Objectives(
        ttft_s=parse_duration_s(wanted["ttft"]),
        tpot_s=parse_duration_s(wanted["tpot"]),
        attainment=wanted["attainment"],
    )


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _side(pod: Object) -> Side:
    labels = pod["metadata"]["labels"]
    return Side(labels.get(REVISION_LABEL, ""), labels.get(COHORT_LABEL, ""))


def _endpoint(pod: Object) -> Endpoint | None:
    """None while the pod takes no new requests."""
    metadata, status = pod["metadata"], pod.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    ip, port = status.get("podIP"), _http_port(pod)
    if conditions.get("Ready") != "True" or "deletionTimestamp" in metadata:
        return None
    if not ip or port is None:
        return None
    host = f"[{ip}]" if ":" in ip else ip
    side = _side(pod)
    return Endpoint(
        pod=_name(pod),
        address=f"{host}:{port}",
        revision=side.revision,
        cohort=side.cohort,
    )


def _http_port(pod: Object) -> int | None:
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", []):
            if port.get("name") == ENGINE_PORT_NAME:
                return int(port["containerPort"])
    return None
