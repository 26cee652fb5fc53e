"""The services and adapters that requests can be routed to, and what a request takes along to them."""

import random
from dataclasses import dataclass, replace

from penstock.core.providers.external_model import ExternalModel
from penstock.core.routing.pick import Side
from penstock.core.routing.route import ADAPTER, EXTERNAL, Backend, Mirror, RouteRule
from penstock.core.routing.traffic_split import RolloutMirror
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Route, Service, Snapshot


@dataclass(frozen=True, slots=True)
class FollowedRule:
    """The rule of a ModelRoute that a request follows, and the backend that was chosen of it."""

    route: Route
    rule: RouteRule
    backend: Backend


class BackendMissing(RequestError):
    """The object that should answer does not exist. followed: the rule that names it; None without one."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(503, message, code=code, retry_after_s=RETRY_AFTER_S)
        self.followed: FollowedRule | None = None


@dataclass(frozen=True, slots=True)
class RoutingTarget:
    """The service that answers a request, and where copies of the request go."""

    service: Service
    mirrors: tuple[Mirror, ...] = ()  # of the ModelRoute that apply to this request
    rollout_mirror: RolloutMirror | None = (
        None  # of the service; None: it does not copy this request
    )
    timeout_s: float | None = None  # of the whole request; None: the gateway's
    followed: FollowedRule | None = None  # the rule that led here; None without a ModelRoute
    adapter: Adapter | None = None  # that the service answers with; None: the base model
    external: ExternalModel | None = None  # that answers, for which `service` stands

    @property
    def model_route(self) -> str:
        """The "namespace/name" of the ModelRoute that led here; empty without one."""
        return "" if self.followed is None else self.followed.route.key

    @property
    def served_name(self) -> str:
        """Name of the model for clients."""
        return self.service.served_name if self.adapter is None else self.adapter.served_name

    @property
    def model(self) -> str:
        """Name of the model in engines."""
        return self.service.served_name if self.adapter is None else self.adapter.engine_name


def service_target(service: Service) -> RoutingTarget:
    """Return the target of requests for a service's own model name."""
    return RoutingTarget(service, rollout_mirror=_sample_rollout_mirror(service))


def adapter_target(
    snapshot: Snapshot, adapter: Adapter, request: InferenceRequest
) -> RoutingTarget:
    """The service of an adapter, with the adapter's version for the request. Raises BackendMissing."""
    service = _base_service(snapshot, adapter)
    key = request.affinity_key(service.affinity)
    version = adapter.choose(random.random(), key)  # noqa: S311 - spreads load
    return RoutingTarget(service, adapter=version)


def _base_service(snapshot: Snapshot, adapter: Adapter) -> Service:
    """The service whose engines serve the adapter. Raises BackendMissing."""
    service = snapshot.get(adapter.service)
    if service is None:
        message = (
            f"the LoraAdapter {adapter.key} is of the InferenceService {adapter.service}, which does not "
            "exist: create it"
        )
        raise BackendMissing(message, code="service_missing")
    return service


def backend_target(
    snapshot: Snapshot, followed: FollowedRule, request: InferenceRequest
) -> RoutingTarget:
    """Return the target of a backend of a route, without mirrors of the route. Raises BackendMissing."""
    route, backend = followed.route, followed.backend
    match backend_claim(snapshot, route, backend):
        case Adapter() as adapter:
            target = adapter_target(snapshot, adapter, request)
        case Service() as service:
            target = service_target(service)
        case ExternalModel() as external:
            target = _external_target(external)
        case None:
            message = (
                f"the ModelRoute {route.key} sends this request to the {backend.kind} {backend.name}, which "
                f"the namespace {route.namespace} does not have: create it, or change the route"
            )
            raise BackendMissing(message, code="route_broken")
    return replace(target, timeout_s=followed.rule.timeout_s, followed=followed)


def _external_target(external: ExternalModel) -> RoutingTarget:
    """Return the target of an external model. The service in it has a key and a name, and no engines."""
    service = Service(
        namespace=external.namespace,
        name=external.service_key.partition("/")[2],
        served_name=external.served_name,
        created_s=external.created_s,
        weights={Side(""): 100},
        endpoints=(),
    )
    return RoutingTarget(service, external=external)


def backend_claim(
    snapshot: Snapshot, route: Route, backend: Backend
) -> Service | Adapter | ExternalModel | None:
    """Return the object that a route names; None if it does not exist."""
    name = f"{route.namespace}/{backend.name}"
    if backend.kind == EXTERNAL:
        return snapshot.get_external(name)
    return snapshot.get_adapter(name) if backend.kind == ADAPTER else snapshot.get_backend(name)


def _sample_rollout_mirror(service: Service) -> RolloutMirror | None:
    """Draw whether the service's rollout copies one request. Returns its mirror, or None."""
    mirror = service.mirror
    is_copied = mirror is not None and 100 * random.random() < mirror.percent  # noqa: S311 - samples
    return mirror if is_copied else None
