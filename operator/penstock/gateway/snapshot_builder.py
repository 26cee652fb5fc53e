"""Builds the gateway's routing snapshot from Kubernetes objects."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.clients.informer import Key
from penstock.clients.kube import Object
from penstock.core.adapters.dedicated import adapter_of
from penstock.core.formats.addresses import host_port
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.accepted_spec import spec_in_use
from penstock.core.observed.lora_engine import LoraEngine, lora_engine
from penstock.core.observed.name_claims import ESTABLISHED, service_claim
from penstock.core.observed.pods import container_port
from penstock.core.observed.stored_status import mirror_of, side_of, stored_status
from penstock.core.reconcile.condition_types import SCALED_TO_ZERO
from penstock.core.routing.affinity import affinity_of
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.spec.claim_order import claim_order
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.service import COHORT_LABEL, ENGINE_PORT_NAME, REVISION_LABEL, SERVICE_LABEL
from penstock.gateway.adapter_reader import AdapterReader, read_adapter
from penstock.gateway.route_reader import read_route
from penstock.gateway.snapshot import Route, Service, Snapshot
from penstock.gateway.snapshot_adapter import Adapter

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Engine:
    """An engine pod of a service.

    name: "namespace/name". endpoint: None while it takes no new requests. is_terminating: whether it is being
    deleted. lora: how it takes adapters; None if it takes none, or its service has none.
    """

    name: str
    side: Side
    endpoint: Endpoint | None
    is_terminating: bool = False
    lora: LoraEngine | None = None


class SnapshotBuilder:
    """Builds each routing snapshot from InferenceServices, engine pods, ModelRoutes and LoraAdapters.

    An unreadable object does not affect the others: a service, a route or an adapter stays as it was in
    the previous snapshot, or is left out if it was not in it; a pod is left out.
    """

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}
        self._routes: dict[str, Route] = {}
        self.adapters = AdapterReader()
        self._logged: dict[str, str] = {}  # unreadable object -> its error

    def build(
        self,
        services: Iterable[Object],
        pods: Iterable[Object],
        routes: Iterable[Object] = (),
        adapters: Iterable[Object] = (),
    ) -> Snapshot:
        """Build the next snapshot. Each argument: all objects of the kind."""
        logged, self._logged = self._logged, {}
        found_adapters = self.adapters.read(
            adapters, lambda body: self._read("LoraAdapter", body, read_adapter, logged)
        )
        services = list(services)
        adapted = {_name(body) for body in services if adapter_of(body)}
        adapted |= {name for each in found_adapters for name in (each.service, each.parent)}
        engines: dict[Key, list[_Engine]] = {}
        for pod in pods:
            if (engine := self._read("Pod", pod, _engine, logged)) is not None:
                metadata = pod["metadata"]
                key = metadata["namespace"], metadata["labels"][SERVICE_LABEL]
                if adapted and "/".join(key) in adapted:
                    engine = replace(engine, lora=self._read("Pod", pod, lora_engine, logged))
                engines.setdefault(key, []).append(engine)
        found_services: dict[str, Service] = {}
        for body in sorted(services, key=_claim_order):
            own = engines.get((body["metadata"]["namespace"], body["metadata"]["name"]), [])
            service = self._read("InferenceService", body, _service, logged)
            service = self._with_last_traffic(service, body) or self._services.get(_name(body))
            if service is not None:
                found_services[service.key] = _with_engines(service, own)
        found_routes: dict[str, Route] = {}
        for body in sorted(routes, key=_claim_order):
            route = self._read("ModelRoute", body, read_route, logged)
            if (route := route or self._routes.get(_name(body))) is not None:
                found_routes[route.key] = route
        self._services, self._routes = found_services, found_routes
        return Snapshot(
            tuple(found_services.values()),
            tuple(found_routes.values()),
            _with_pools(found_adapters, found_services),
        )

    def _with_last_traffic(self, service: Service | None, body: Object) -> Service | None:
        """Return the service with its previous traffic and name if its status has lost the traffic.

        The operator restores the status. Until then the requests go where they went.
        """
        if service is None or _has_traffic(stored_status(body)):
            return service
        last = self._services.get(service.key)
        if last is None or last.created_s != service.created_s:
            return service
        return replace(
            service,
            weights=last.weights,
            generation=last.generation,
            mirror=last.mirror,
            precedence=last.precedence,
        )

    def _read(
        self, kind: str, body: Object, read: Callable[[Object], T], logged: Mapping[str, str]
    ) -> T | None:
        """Read one object; None if it is unreadable, which is logged once for each new error."""
        try:
            return read(body)
        except Exception as error:
            name, message = f"{kind} {_name(body)}", repr(error)
            if logged.get(name) != message:
                logger.error("the %s cannot be read", name, exc_info=error)
            self._logged[name] = message
            return None


def build(
    services: Iterable[Object],
    pods: Iterable[Object],
    routes: Iterable[Object] = (),
    adapters: Iterable[Object] = (),
) -> Snapshot:
    """Build one routing snapshot that has no previous one."""
    return SnapshotBuilder().build(services, pods, routes, adapters)


def _with_engines(service: Service, engines: Iterable[_Engine]) -> Service:
    endpoints = [engine.endpoint for engine in engines if engine.endpoint is not None]
    return replace(
        service,
        endpoints=tuple(sorted(endpoints, key=lambda endpoint: endpoint.pod)),
        sides={engine.name: engine.side for engine in engines},
        terminating=frozenset(engine.name for engine in engines if engine.is_terminating),
        lora_engines={e.name: e.lora for e in engines if e.lora is not None},
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


def _claim_order(body: Object) -> tuple[str, str, str]:
    return claim_order(body["metadata"])


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
        tenant_header=canary.get("tenantHeader", ""),
        stalled=_stalled(status),
        is_scaled_to_zero=_is_scaled_to_zero(status),
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
    held = {c["type"]: c for c in status.get("conditions", []) if c["status"] == "True"}
    return str(held.get("Stalled", {}).get("reason", ""))


def _is_scaled_to_zero(status: Object) -> bool:
    """Whether the service has no traffic because no engine is wanted."""
    reasons = {c["type"]: c.get("reason") for c in status.get("conditions", [])}
    return reasons.get("TrafficAvailable") == SCALED_TO_ZERO


def _objectives(wanted: Object | None) -> Objectives | None:
    if wanted is None:
        return None
    return Objectives.parse(wanted.get("ttft"), wanted.get("tpot"), wanted.get("attainment"))


def _name(body: Object) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def _engine(pod: Object) -> _Engine:
    is_terminating = "deletionTimestamp" in pod["metadata"]
    return _Engine(_name(pod), _side(pod), _endpoint(pod), is_terminating)


def _side(pod: Object) -> Side:
    labels = pod["metadata"]["labels"]
    return Side(labels.get(REVISION_LABEL, ""), labels.get(COHORT_LABEL, ""))


def _endpoint(pod: Object) -> Endpoint | None:
    """Read the address of an engine pod; None while the pod takes no new requests."""
    metadata, status = pod["metadata"], pod.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    ip, port = status.get("podIP"), container_port(pod, ENGINE_PORT_NAME)
    if conditions.get("Ready") != "True" or "deletionTimestamp" in metadata:
        return None
    if not ip or port is None:
        return None
    side = _side(pod)
    return Endpoint(
        pod=_name(pod),
        address=host_port(ip, port),
        revision=side.revision,
        cohort=side.cohort,
    )
