"""The gateway's routing snapshot: services, engines, routes and adapters at one moment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import ClassVar, TypeVar

from penstock.clients.kubernetes.client import Object
from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import AdapterDemand
from penstock.core.observed.lora_engine import LoraEngine
from penstock.core.observed.name_claims import (
    ESTABLISHED,
    ClaimKind,
    NameClaim,
    Precedence,
    restored_claim,
)
from penstock.core.observed.name_index import NameIndex
from penstock.core.providers.external_model import ExternalModel
from penstock.core.routing.affinity import Affinity
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.routing.route import RouteRule
from penstock.core.routing.traffic_split import RolloutMirror
from penstock.core.spec.objectives import Objectives
from penstock.gateway.snapshots.adapter import Adapter


@dataclass(frozen=True, slots=True)
class Service:
    """An InferenceService of the snapshot."""

    kind: ClassVar[ClaimKind] = "InferenceService"
    namespace: str
    name: str
    served_name: str
    created_s: int  # since the epoch
    # The traffic share of each side (revision and cohort), from the status
    weights: Mapping[Side, int]
    endpoints: tuple[Endpoint, ...]  # its ready engines
    objectives: Objectives | None = None
    sides: Mapping[str, Side] = field(default_factory=dict)  # by engine pod, ready or not
    terminating: frozenset[str] = frozenset()  # engine pods that are being deleted
    affinity: Affinity = "None"
    generation: int = 0  # of the weights
    mirror: RolloutMirror | None = None  # of its rollout
    # Reason in one word why no revision can serve before the spec is changed; empty if one may
    stalled: str = ""
    is_scaled_to_zero: bool = False  # whether no engine is wanted
    # Start-up time of its first engine; None if no request starts one
    wakes_in_s: float | None = None
    # LoRA engines by pod; empty if the service has no adapter
    lora_engines: Mapping[str, LoraEngine] = field(default_factory=dict)
    # Name of the LoraAdapter whose dedicated pool it is; empty if it answers requests for its own model name
    adapter: str = ""
    precedence: Precedence = ESTABLISHED  # of its claim on the model name

    @property
    def is_mixed(self) -> bool:
        """Whether its engines are of more than one side, so that a canary can be judged."""
        return len(set(self.sides.values())) > 1

    @property
    def is_to_wake(self) -> bool:
        """Whether it has no engine, and a request starts one."""
        return self.wakes_in_s is not None and not self.endpoints

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def full_name(self) -> str:
        """The model name that is unique among namespaces."""
        return f"{self.namespace}/{self.served_name}"


@dataclass(frozen=True, slots=True)
class Route:
    """A ModelRoute: a model name whose requests go to services of its namespace by rules."""

    kind: ClassVar[ClaimKind] = "ModelRoute"
    namespace: str
    name: str
    served_name: str
    created_s: int
    rules: tuple[RouteRule, ...]
    generation: int = 0  # of the spec that the rules are from
    precedence: Precedence = ESTABLISHED  # of its claim on the model name
    # Further names that lead to it, with the precedence of its claim on each
    aliases: tuple[tuple[str, Precedence], ...] = ()

    @property
    def by_alias(self) -> tuple["Route", ...]:
        """The route under each of its aliases."""
        return tuple(
            replace(self, served_name=name, precedence=precedence, aliases=())
            for name, precedence in self.aliases
        )

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.served_name}"


Claim = Service | Route | Adapter
# Most model names that an error lists.
MAX_LISTED_NAMES = 20
T = TypeVar("T", Route, Adapter)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Result of a lookup: no service, route or adapter has the model name."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All services, routes and adapters. `core/observed/name_index.py` says which has a model name."""

    services: tuple[Service, ...] = ()
    routes: tuple[Route, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    externals: tuple[ExternalModel, ...] = ()  # only routes lead to them
    # The first of the names in `models`, in alphabetical order, for errors
    first_names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _by_model: dict[str, Claim] = field(init=False, repr=False, compare=False)
    _models: tuple[tuple[str, Claim], ...] = field(init=False, repr=False, compare=False)
    _by_key: dict[str, Service] = field(init=False, repr=False, compare=False)
    _adapters_by_key: dict[str, Adapter] = field(init=False, repr=False, compare=False)
    _externals_by_key: dict[str, ExternalModel] = field(init=False, repr=False, compare=False)
    _versions: dict[str, dict[str, AdapterVersion]] = field(init=False, repr=False, compare=False)
    _demand: dict[str, dict[str, AdapterDemand]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_model, models = _names(self._claims())
        object.__setattr__(self, "_by_model", by_model)
        object.__setattr__(self, "_models", models)
        names = nsmallest(MAX_LISTED_NAMES, dict(models))  # without a call for each
        object.__setattr__(self, "first_names", tuple(names))
        object.__setattr__(self, "_by_key", {service.key: service for service in self.services})
        adapters = {adapter.key: adapter for adapter in self.adapters}
        object.__setattr__(self, "_adapters_by_key", adapters)
        externals = {external.key: external for external in self.externals}
        object.__setattr__(self, "_externals_by_key", externals)
        versions: dict[str, dict[str, AdapterVersion]] = {}
        demand: dict[str, dict[str, AdapterDemand]] = {}
        for adapter in self.adapters:
            versions.setdefault(adapter.parent, {})
            of_service = versions.setdefault(adapter.service, {})
            of_service.update(zip(adapter.engine_names, adapter.versions, strict=True))
            demand.setdefault(adapter.service, {})[adapter.engine_name] = adapter.demand
        for service in self.services:
            if service.adapter:  # its engines are known before the adapter's requests go there
                versions.setdefault(service.key, {})
        object.__setattr__(self, "_versions", versions)
        object.__setattr__(self, "_demand", demand)

    def resolve(self, model: str) -> Claim | Unknown:
        """Look a model name up: a served name, or "namespace/name"."""
        return self._by_model.get(model) or Unknown()

    def find_by_object_name(self, name: str) -> list[Claim]:
        """The services, routes and adapters whose object has this name, whatever their model name is.

        Dedicated pools are left out: clients cannot address them.
        """
        return [each for each in self._claims() if each.name == name]

    def _claims(self) -> tuple[Claim, ...]:
        """The objects that clients can address: all but dedicated pools."""
        services = tuple(service for service in self.services if not service.adapter)
        aliases = tuple(each for route in self.routes for each in route.by_alias)
        return self.routes + services + self.adapters + aliases

    def get(self, key: str) -> Service | None:
        """Return the service "namespace/name"; None if there is none."""
        return self._by_key.get(key)

    def get_backend(self, key: str) -> Service | None:
        """Return the service "namespace/name" that routes may name; None if there is none."""
        service = self.get(key)
        return None if service is None or service.adapter else service

    def get_adapter(self, key: str) -> Adapter | None:
        """Return the adapter "namespace/name"; None if there is none."""
        return self._adapters_by_key.get(key)

    def get_external(self, key: str) -> ExternalModel | None:
        """Return the external model "namespace/name"; None if there is none."""
        return self._externals_by_key.get(key)

    @property
    def services_with_adapters(self) -> list[Service]:
        """The services that at least one adapter is of, and the dedicated pools of adapters."""
        return [service for key in self._versions if (service := self.get(key)) is not None]

    def adapter_versions(self, service: str) -> Mapping[str, AdapterVersion]:
        """Return the versions of the service's adapters, by name in engines."""
        return self._versions.get(service, {})

    def adapter_demand(self, service: str) -> Mapping[str, AdapterDemand]:
        """Return the demand for the service's adapters that statuses show, by name in engines."""
        return self._demand.get(service, {})

    def revisions(self) -> dict[str, set[str]]:
        """Revisions by service: those with pods or weight, and those that routes mirror to.

        An external model counts as a service without one.
        """
        found: dict[str, set[str]] = {each.service_key: set() for each in self.externals}
        for service in self.services:
            sides = (*service.sides.values(), *service.weights)
            found[service.key] = {side.revision for side in sides}
        for route in self.routes:
            for rule in route.rules:
                for mirror in rule.mirrors:
                    key = f"{route.namespace}/{mirror.service}"
                    found.setdefault(key, set()).add(mirror.revision or "")
        return found

    def models(self) -> tuple[tuple[str, Claim], ...]:
        """Return each model that can answer, under the name that clients must use. Each is there once."""
        return self._models


def name_claim(each: Claim) -> NameClaim:
    """The claim of an object on its model name."""
    return NameClaim(
        each.kind, each.namespace, each.name, each.served_name, each.created_s, each.precedence
    )


def with_last_precedence(body: Object, found: T, last: T | None) -> T:
    """The object with its previous precedence if its status is lost. The operator writes the status again.

    found: read from `body`. last: of the previous snapshot; None if it was not in it.
    """
    if last is None:
        return found
    claim = restored_claim(body, name_claim(found), name_claim(last))
    return replace(found, precedence=claim.precedence)


def _names(objects: Iterable[Claim]) -> tuple[dict[str, Claim], tuple[tuple[str, Claim], ...]]:
    """Return the object that each name leads to, and the listed models with the names to use."""
    by_served_name: dict[str, list[Claim]] = {}
    for each in objects:
        by_served_name.setdefault(each.served_name, []).append(each)
    by_name: dict[str, Claim] = {}
    models: list[tuple[str, Claim]] = []
    for name, rivals in by_served_name.items():
        found, short = _holders(rivals)
        by_name.setdefault(name, short)
        for each in found:
            by_name[each.full_name] = each
            if not isinstance(each, Adapter) or each.is_listed:
                models.append((name if each is short else each.full_name, each))
    return by_name, tuple(models)


def _holders(rivals: list[Claim]) -> tuple[list[Claim], Claim]:
    """Return the objects that have a served name in their namespaces, and the one that has it alone.

    rivals: all objects with that served name. Most have none, of thousands of adapters.
    """
    if len(rivals) == 1:
        return rivals, rivals[0]
    claims = {name_claim(each): each for each in rivals}
    index = NameIndex(claims)
    one_of_each = {claim.namespace: claim for claim in claims}.values()
    found = [claims[index.holder(each)] for each in one_of_each]
    return found, claims[index.short_name_holder(next(iter(claims)))]
