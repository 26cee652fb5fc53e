"""Reads the objects of a service from the API server, and what was recorded with them."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace

from penstock.api.conversion.past_specs import spec_of_revision
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    Resource,
)
from penstock.controller.names.model_names import ModelNames
from penstock.core.manifests.disruption import engines_budget_name
from penstock.core.observed.children import (
    ObservedBudget,
    ObservedDeployment,
    ObservedJob,
    ObservedState,
    own_pods,
    owner_uid,
)
from penstock.core.observed.name_claims import (
    NameClaim,
    Standing,
    stored_conflict,
    with_next_status,
)
from penstock.core.observed.name_index import NameIndex
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.observed.state_record import StateRecord
from penstock.core.observed.stored_status import (
    mirror_of,
    refusal_of,
    stored_status,
    traffic_of,
)
from penstock.core.reconcile.name_conflict import NAMES_NOT_LISTED
from penstock.core.spec.history import Revision
from penstock.core.spec.revision import revision_of
from penstock.core.spec.service import (
    MANAGED_BY,
    MANAGED_LABEL,
    ROLE_LABEL,
    SERVE,
    SERVICE_LABEL,
    ServiceSpec,
)

Budgets = Callable[[str], Awaitable[list[Object]]]


class ServiceReader:
    """Reads the objects of services.

    names: the model names that all objects claim. budgets: returns the PodDisruptionBudgets of a namespace.
    """

    def __init__(self, kube: Kube, names: ModelNames, budgets: Budgets) -> None:
        self._kube = kube
        self._names = names
        self._budgets = budgets

    async def read(
        self, body: Object, spec: ServiceSpec, now_s: float
    ) -> tuple[ObservedState, StateRecord]:
        """Read a service's objects and the record of its status. body: the service itself.

        They are read from the API server, not from a cache: decisions on old objects could delete pods.
        Only the budgets come from a watch, as a decision on old ones is undone by the next.
        """
        leftovers: set[tuple[str, str]] = set()
        stored = await self._children(CONTROLLER_REVISIONS, spec)
        records = _owned_by(spec, stored, leftovers)
        record = StateRecord.of(records)
        status = record.restored(stored_status(body))
        rollout = RolloutState.of(status, now_s)
        history = (*map(Revision.of, records), *_orphaned_revisions(stored))
        owned = await self._owned(DEPLOYMENTS, spec, leftovers)
        deployments = tuple(map(ObservedDeployment.of, owned))
        pods, _ = await self._kube.list(PODS, spec.namespace, labelSelector=_selector(spec))
        budgets = await self._budgets(spec.namespace)
        is_canary = rollout is not None and rollout.strategy == "Canary" and not rollout.is_settled
        jobs = await self._owned(JOBS, spec, leftovers) if is_canary else []
        serving = [pod for pod in pods if pod["metadata"]["labels"].get(ROLE_LABEL) == SERVE]
        budget = engines_budget_name(spec.name)
        observed = ObservedState(
            deployments=deployments,
            pods=own_pods(map(ObservedPod.of, pods), deployments, spec.uid, spec.created_at),
            history=history,
            rollout=rollout,
            traffic=traffic_of(status),
            mirror=mirror_of(status),
            traffic_generation=status.get("trafficGeneration", 0),
            stored_total=status.get("desiredReplicas"),
            state_holder=record.holder,
            stored_refusal=refusal_of(status),
            jobs=tuple(map(ObservedJob.of, jobs)),
            leftovers=frozenset(leftovers),
            budget=ObservedBudget.of(budgets, budget, spec.uid, serving),
        )
        return self.with_spec(observed, body, spec), record

    def with_spec(self, observed: ObservedState, body: Object, spec: ServiceSpec) -> ObservedState:
        """The state with the fields that depend on the spec. body: the service with this spec."""
        claim = self._names.read("InferenceService", body)
        own = claim and with_next_status(claim, spec.model_name, claim.precedence.standing)
        return replace(
            observed,
            stable_spec=_stable_spec(body, spec, observed.history, observed.rollout),
            name_taken_by=name_taken_by(self._names.index, own),
        )

    def record_namespace_holder(self, body: Object, model_name: str) -> bool:
        """Record which service of the namespace has a model name.

        model_name: of a service by its next status. Returns False if that service cannot be planned yet:
        until all services are known, only one that has answered under its name is known to keep it.
        """
        claim = self._names.read("InferenceService", body)
        if claim is None:
            return True
        if self._names.is_listed("InferenceService"):
            own = with_next_status(claim, model_name, claim.precedence.standing)
            return self._names.index.record_namespace_holder(own)
        by, is_same = claim.precedence, claim.model_name == model_name
        return is_same and by.standing is Standing.ESTABLISHED and not by.yields

    def record_short_name_holder(self, body: Object, standing: Standing, model_name: str) -> bool:
        """Record which object holds the short name of a service.

        standing, model_name: by the next status. Returns False if that status makes the service answer under
        a name for the first time, and it cannot be decided yet who has the name alone.
        """
        claim = self._names.read("InferenceService", body)
        own = claim and with_next_status(claim, model_name, standing)
        if own is None or own.precedence.standing is not Standing.READY:
            return True
        return self._names.is_complete and self._names.index.record_short_name_holder(own)

    def with_name_conflict(
        self, observed: ObservedState, body: Object, standing: Standing, model_name: str | None
    ) -> ObservedState:
        """The state with the reason why the short name leads to another namespace, if it does or may.

        It is decided for the service as its next status will be, and counts for other objects from now on.
        Until all names are known, it stays as the status says, and what has not answered yields. standing,
        model_name: by the next status; no name if the spec is refused, as the status keeps its name then.
        """
        claim = self._names.read("InferenceService", body)
        if claim is None:
            return observed
        own = with_next_status(claim, model_name or claim.model_name, standing)
        if not self._names.is_complete:
            is_new = own.precedence.standing is Standing.READY
            conflict = stored_conflict(body) or (NAMES_NOT_LISTED if is_new else "")
            return replace(observed, name_conflict=conflict)
        yields = model_name is not None and observed.name_taken_by is not None
        return replace(observed, name_conflict=self._names.index.settle(own, yields=yields))

    async def _owned(
        self, resource: Resource, spec: ServiceSpec, leftovers: set[tuple[str, str]]
    ) -> list[Object]:
        """Return the service's children of one kind. Adds those of a deleted service to `leftovers`."""
        return _owned_by(spec, await self._children(resource, spec), leftovers)

    async def _children(self, resource: Resource, spec: ServiceSpec) -> list[Object]:
        """List the objects of one kind with the service's label, with any owner or none."""
        found, _ = await self._kube.list(resource, spec.namespace, labelSelector=_selector(spec))
        return found


def _selector(spec: ServiceSpec) -> str:
    return f"{SERVICE_LABEL}={spec.name}"


def _owned_by(
    spec: ServiceSpec, children: Collection[Object], leftovers: set[tuple[str, str]]
) -> list[Object]:
    """Return the children that the service owns.

    Adds (kind, name) of children of a deleted service of the same name to `leftovers`. A child without
    an owner is in neither: applying it adopts it.
    """
    foreign = [child for child in children if owner_uid(child) not in (None, spec.uid)]
    leftovers |= {(child["kind"], child["metadata"]["name"]) for child in foreign}
    return [child for child in children if owner_uid(child) == spec.uid]


def _orphaned_revisions(stored: Collection[Object]) -> list[Revision]:
    """Return the revisions of Penstock that have no owner."""
    return [
        replace(Revision.of(each), is_orphan=True)
        for each in stored
        if owner_uid(each) is None and each["metadata"]["labels"].get(MANAGED_LABEL) == MANAGED_BY
    ]


def _stable_spec(
    body: Object,
    spec: ServiceSpec,
    history: tuple[Revision, ...],
    rollout: RolloutState | None,
) -> ServiceSpec | None:
    """Build the stable revision's spec: its recorded fields, and all others from the current spec.

    None if its record is missing, invalid, or hashes to another revision.
    """
    stable = rollout.stable if rollout else None
    if stable == revision_of(spec):
        return spec
    recorded = next((each.recorded_fields for each in history if each.revision == stable), None)
    if recorded is None:
        return None
    stable_spec = spec_of_revision(body, recorded)
    # Another version of Penstock may interpret the same fields differently.
    return stable_spec if stable_spec and revision_of(stable_spec) == stable else None


def name_taken_by(names: NameIndex, own: NameClaim | None) -> str | None:
    """Name of the service of the namespace that has the model name; None if it is free, or its own.

    own: None for the dedicated pool of an adapter, whose model name is for its engines only.
    """
    if own is None:
        return None
    holder = names.holder(own, kinds=(own.kind,))
    return None if holder.key == own.key else holder.name
