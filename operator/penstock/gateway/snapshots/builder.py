"""Builds the gateway's routing snapshot from Kubernetes objects."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.clients.kubernetes.client import Object
from penstock.core.adapters.dedicated import adapter_of
from penstock.core.formats.addresses import host_port
from penstock.core.formats.conditions import find_condition
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.accepted_spec import spec_in_use
from penstock.core.observed.lora_engine import LoraEngine, lora_engine
from penstock.core.observed.name_claims import (
    ESTABLISHED,
    order_of_objects,
    restored_claim,
    service_claim,
)
from penstock.core.observed.pods import container_port
from penstock.core.observed.stored_status import mirror_of, side_of, stored_status
from penstock.core.reconcile.condition_types import SCALED_TO_ZERO
from penstock.core.routing.affinity import affinity_of
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.scaling.learned.startup import PRIOR_STARTUP_S
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.service import COHORT_LABEL, ENGINE_PORT_NAME, REVISION_LABEL, SERVICE_LABEL
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.adapter_reader import AdapterReader
from penstock.gateway.snapshots.external_reader import read_external
from penstock.gateway.snapshots.object_reader import ObjectReader, object_name
from penstock.gateway.snapshots.route_reader import read_route
from penstock.gateway.snapshots.snapshot import (
    Route,
    Service,
    Snapshot,
    name_claim,
    with_last_precedence,
)


@dataclass(frozen=True, slots=True)
class _Engine:
    """An engine pod of a service.

    name, service: "namespace/name". endpoint: None while it takes no new requests. is_terminating: whether it
    is being deleted.
    """

    name: str
    service: str
    side: Side
    endpoint: Endpoint | None
    is_terminating: bool = False


# An engine pod, and how it takes adapters; None if it takes none, or its service has none.
_EnginePod = tuple[_Engine, LoraEngine | None]


@dataclass(frozen=True, slots=True)
class _BuiltService:
    """A service of the last snapshot. source: as it was read, without its engines."""

    source: Service
    engines: list[_EnginePod]
    service: Service


class SnapshotBuilder:
    """Builds each routing snapshot from InferenceServices, engine pods, ModelRoutes and LoraAdapters.

    Only what changed since the previous snapshot is read and built again. An unreadable object does not
    affect the others: a service, a route or an adapter stays as it was in the previous snapshot, or is left
    out if it was not in it; a pod is left out.
    """

    def __init__(self) -> None:
        self._services = ObjectReader("InferenceService", _read_service, order=order_of_objects)
        self._routes = ObjectReader("ModelRoute", _read_route, order=order_of_objects)
        self._engines = ObjectReader("Pod", lambda body, _: _engine(body), keeps_last=False)
        self._lora_engines = ObjectReader(
            "Pod", lambda body, _: lora_engine(body), keeps_last=False
        )
        self.adapters = AdapterReader()
        self._externals = ObjectReader("ExternalModel", lambda body, _: read_external(body))
        self._built: dict[str, _BuiltService] = {}

    def build(
        self,
        services: Iterable[Object],
        pods: Iterable[Object],
        routes: Iterable[Object] = (),
        adapters: Iterable[Object] = (),
        externals: Iterable[Object] = (),
    ) -> Snapshot:
        """Build the next snapshot. Each argument: all objects of the kind."""
        pods = list(pods)
        found_adapters = tuple(self.adapters.read_all(adapters).values())
        found_services = self._services.read_all(services)
        adapted = {key for key, service in found_services.items() if service.adapter}
        adapted |= {name for each in found_adapters for name in (each.service, each.parent)}
        lora_engines = self._lora_engines.read_all(p for p in pods if _service_of(p) in adapted)
        engines: dict[str, list[_EnginePod]] = {}
        for name, engine in self._engines.read_all(pods).items():
            engines.setdefault(engine.service, []).append((engine, lora_engines.get(name)))
        self._built = {
            key: self._with_engines(service, engines.get(key, []))
            for key, service in found_services.items()
        }
        built = {key: each.service for key, each in self._built.items()}
        return Snapshot(
            tuple(built.values()),
            tuple(self._routes.read_all(routes).values()),
            _with_pools(found_adapters, built),
            tuple(self._externals.read_all(externals).values()),
        )

    def _with_engines(self, service: Service, engines: list[_EnginePod]) -> _BuiltService:
        """Return the service with its engines: the same object as before if nothing of it changed."""
        last = self._built.get(service.key)
        if last is not None and last.source is service and last.engines == engines:
            return last
        return _BuiltService(service, engines, _with_engines(service, engines))


def _read_service(body: Object, last: Service | None) -> Service:
    """Read a service, with the traffic and the name of the last one if its status has lost the traffic.

    The operator restores the status. Until then the requests go where they went.
    """
    service = _service(body)
    if _has_traffic(stored_status(body)) or last is None or last.created_s != service.created_s:
        return service
    claim = restored_claim(body, name_claim(service), name_claim(last))
    return replace(
        service,
        weights=last.weights,
        generation=last.generation,
        mirror=last.mirror,
        served_name=claim.model_name,
        precedence=claim.precedence,
    )


def _read_route(body: Object, last: Route | None) -> Route:
    route = with_last_precedence(body, read_route(body), last)
    by_alias = {} if last is None else {each.served_name: each for each in last.by_alias}
    aliases = [
        with_last_precedence(body, each, by_alias.get(each.served_name)) for each in route.by_alias
    ]
    return replace(route, aliases=tuple((each.served_name, each.precedence) for each in aliases))


def _with_engines(service: Service, pods: Sequence[_EnginePod]) -> Service:
    endpoints = [engine.endpoint for engine, _ in pods if engine.endpoint is not None]
    return replace(
        service,
        endpoints=tuple(sorted(endpoints, key=lambda endpoint: endpoint.pod)),
        sides={engine.name: engine.side for engine, _ in pods},
        terminating=frozenset(engine.name for engine, _ in pods if engine.is_terminating),
        lora_engines={engine.name: lora for engine, lora in pods if lora is not None},
    )


def _with_pools(
    adapters: tuple[Adapter, ...], services: Mapping[str, Service]
) -> tuple[Adapter, ...]:
    """The adapters; one whose dedicated pool does not exist is served by its parent."""
    if all(each.service == each.parent for each in adapters):
        return adapters
    return tuple(
        each
        if each.service == each.parent or _is_pool_of(services.get(each.service), each)
        else replace(each, service=each.parent)
        for each in adapters
    )


def _is_pool_of(service: Service | None, adapter: Adapter) -> bool:
    return service is not None and service.adapter == adapter.name


def _service(body: Object) -> Service:
    """Read a service of the snapshot, without its engines."""
    metadata, spec, status = body["metadata"], spec_in_use(body), stored_status(body)
    namespace, name = metadata["namespace"], metadata["name"]
    canary, claim = spec.get("rollout", {}).get("canary", {}), service_claim(body)
    return Service(
        namespace=namespace,
        name=name,
        served_name=status.get("modelName") or spec["model"].get("name") or name,
        created_s=int(parse_timestamp(metadata["creationTimestamp"])),
        weights=_weights(status),
        endpoints=(),
        objectives=_objectives(spec.get("objectives")),
        affinity=affinity_of(canary.get("sessionAffinity", {}).get("type", "None")),
        # Assumed shares have no generation, so that no rollout relies on them.
        generation=status.get("trafficGeneration", 0) if _has_traffic(status) else 0,
        mirror=mirror_of(status),
        stalled=_stalled(status),
        is_scaled_to_zero=_is_scaled_to_zero(status),
        wakes_in_s=_wakes_in_s(spec, status),
        adapter=adapter_of(body),
        precedence=ESTABLISHED if claim is None else claim.precedence,
    )


def _has_traffic(status: Object) -> bool:
    """Whether the status has its traffic shares, which may be none.

    An API server with a newer schema drops the shares that an earlier version wrote, not their revisions.
    """
    return "traffic" in status and all("percent" in target for target in status["traffic"])


def _weights(status: Object) -> dict[Side, int]:
    """The traffic share of each side. Without shares, all of the traffic is for the stable revision."""
    targets = status.get("traffic", [])
    if not targets or _has_traffic(status):
        return {side_of(target): target["percent"] for target in targets}
    sides, stable = [side_of(target) for target in targets], Side(status.get("stableRevision", ""))
    return {stable if stable in sides else sides[0]: 100}


def _stalled(status: Object) -> str:
    """The reason of the condition Stalled; empty if it is not true."""
    return str(find_condition(status, "Stalled", "True").get("reason", ""))


def _is_scaled_to_zero(status: Object) -> bool:
    """Whether the service has no traffic because no engine is wanted."""
    return find_condition(status, "TrafficAvailable").get("reason") == SCALED_TO_ZERO


def _wakes_in_s(spec: Object, status: Object) -> float | None:
    """Return the start-up time of the first engine of a service at zero; None if no request wakes it."""
    scaling = spec.get("scaling") or {}
    if scaling.get("minReplicas", 1) or scaling.get("mode", "Active") != "Active":
        return None
    learned_s = (status.get("scaling") or {}).get("startupSeconds")
    return PRIOR_STARTUP_S if learned_s is None else float(learned_s)


def _objectives(wanted: Object | None) -> Objectives | None:
    if wanted is None:
        return None
    return Objectives.parse(wanted.get("ttft"), wanted.get("tpot"), wanted.get("attainment"))


def _service_of(pod: Object) -> str:
    """Name of the pod's service, "namespace/name"; empty if it has no such label."""
    metadata = pod["metadata"]
    service = (metadata.get("labels") or {}).get(SERVICE_LABEL)
    return f"{metadata['namespace']}/{service}" if service else ""


def _engine(pod: Object) -> _Engine:
    is_terminating = "deletionTimestamp" in pod["metadata"]
    return _Engine(object_name(pod), _service_of(pod), _side(pod), _endpoint(pod), is_terminating)


def _side(pod: Object) -> Side:
    labels = pod["metadata"]["labels"]
    return Side(labels.get(REVISION_LABEL, ""), labels.get(COHORT_LABEL, ""))


def _endpoint(pod: Object) -> Endpoint | None:
    """Read the address of an engine pod; None while the pod takes no new requests."""
    metadata, status = pod["metadata"], pod.get("status", {})
    ip, port = status.get("podIP"), container_port(pod, ENGINE_PORT_NAME)
    if not find_condition(status, "Ready", "True") or "deletionTimestamp" in metadata:
        return None
    if not ip or port is None:
        return None
    side = _side(pod)
    return Endpoint(
        pod=object_name(pod),
        address=host_port(ip, port),
        revision=side.revision,
        cohort=side.cohort,
    )
