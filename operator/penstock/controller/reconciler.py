"""Reconciles one service: reads its objects, plans, writes, and updates the status."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.api.convert import SHAPING, InvalidService, to_core
from penstock.clients.clock import monotonic, wall
from penstock.clients.events import EventRecorder
from penstock.clients.kube import Kube, Object
from penstock.clients.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    INFERENCE_SERVICES,
    JOBS,
    KINDS,
    PODS,
    Resource,
)
from penstock.controller.judge import Judgement
from penstock.controller.refusals import Refusals
from penstock.core.formats.timestamps import timestamp
from penstock.core.manifests.disruption import engines_budget_name
from penstock.core.observed.children import (
    Observed,
    ObservedBudget,
    ObservedDeployment,
    ObservedJob,
    ObservedPod,
    owner_uid,
    pods_of,
)
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile import conditions
from penstock.core.reconcile import status as statuses
from penstock.core.reconcile.plan import Plan, PlanInputs, plan
from penstock.core.rollout import commands
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.rollout.wake import earlier_s
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.claim_order import claim_order
from penstock.core.spec.history import Revision
from penstock.core.spec.revision import revision_of
from penstock.core.spec.service import (
    REVISION_LABEL,
    ROLE_LABEL,
    SERVE,
    SERVICE_LABEL,
    ServiceSpec,
)
from penstock.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    Rejected,
    Transient,
)

logger = logging.getLogger(__name__)

Key = tuple[str, str]

OPERATOR_MANAGER = "penstock-operator"
SCALER_MANAGER = "penstock-scaler"


@dataclass(slots=True)
class _Outcome:
    """Results of one plan's writes. refusals: (reason, message) by revision. error: raised after the
    status is written, so that the plan is tried again."""

    refusals: dict[str, tuple[str, str]] = field(default_factory=dict)
    error: KubeError | None = None


class Reconciler:
    """Brings the objects of one service in line with its spec. All its state can be read again.

    gone: called with a service that no longer exists, in case no watch reported it.
    """

    def __init__(
        self,
        kube: Kube,
        engine_image: str,
        *,
        services: Callable[[], Mapping[Key, Object]],
        scaling: Callable[[Key, str], ScalingReport | None],
        judgement: Callable[[Key, str], Judgement | None],
        obeyed: Callable[[Key], AppliedGenerations | None],
        gone: Callable[[Key], None],
    ) -> None:
        self._kube = kube
        self._image = engine_image
        self._services = services
        self._scaling = scaling
        self._judgement = judgement
        self._obeyed = obeyed
        self._gone = gone
        self._events = EventRecorder(kube, OPERATOR_MANAGER)
        self._refused = Refusals()

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once. Returns in how many seconds to do so again without a change; None: never.

        Idempotent. Raises from `penstock.errors`.
        """
        known = self._services().get(key)
        try:
            body = await self._kube.get(INFERENCE_SERVICES, *key)
        except NotFound:
            if known is not None and self._services().get(key) is known:
                self._gone(key)
            return None
        if "deletionTimestamp" in body["metadata"]:
            return None  # children go by their owner reference
        before = body.get("status", {})
        now_s = wall()
        now = timestamp(now_s)
        try:
            spec = to_core(body)
        except InvalidService as error:
            tree = conditions.invalid(str(error))
            generation = body["metadata"]["generation"]
            after: Object = {
                "observedGeneration": generation,
                "conditions": statuses.as_objects(tree, before, generation, now),
            }
            is_written = await self._write_status(key, body, before, after, revision=None)
            return None if is_written else 0.0
        observed = await self._observe(body, spec, now_s)
        scaling = self._scaling(key, spec.uid) or ScalingReport.of(before)
        canary = observed.deployment(observed.rollout.revision if observed.rollout else None)
        said = self._judgement(key, canary.uid) if canary else None
        inputs = self._plan_inputs(key, body, scaling, said)
        if _is_resumed(inputs, observed):
            self._refused.forget(spec.uid)
        outcome = await self._bring_up(
            spec, plan(spec, observed, self._image, now_s, inputs), observed.leftovers
        )
        observed = replace(observed, refusals=outcome.refusals)
        planned = plan(spec, observed, self._image, now_s, inputs)
        await self._adjust(spec, planned, outcome)
        after = statuses.render(
            spec, observed, planned, scaling, before, now,
            said.evidence if said else None, said.metrics if said else None,
        )  # fmt: skip
        is_written = await self._write_status(key, body, before, after, planned.revision)
        if outcome.error is not None:
            raise outcome.error  # it may be allowed later
        if not is_written:
            return 0.0
        return earlier_s(planned.wake_s, self._refused.expiry_s(spec.uid, monotonic()))

    def _plan_inputs(
        self, key: Key, body: Object, scaling: ScalingReport | None, said: Judgement | None
    ) -> PlanInputs:
        annotations = body["metadata"].get("annotations", {})
        return PlanInputs(
            desired=scaling.desired if scaling else None,
            verdict=said.verdict if said else None,
            command=commands.parse_command(annotations.get(commands.ANNOTATION)),
            applied_generations=self._obeyed(key),
            by_variant=scaling.by_variant if scaling else {},
        )

    async def _observe(self, body: Object, spec: ServiceSpec, now_s: float) -> Observed:
        """Read the service's objects. Not from a cache: a stale list must never delete or scale."""
        status = body.get("status", {})
        rollout = RolloutState.of(status, now_s)
        leftovers: set[tuple[str, str]] = set()
        records = await self._owned(CONTROLLER_REVISIONS, spec, leftovers)
        history = tuple(Revision.of(record) for record in records)
        deployments = tuple(
            ObservedDeployment.of(each) for each in await self._owned(DEPLOYMENTS, spec, leftovers)
        )
        pods, _ = await self._kube.list(PODS, spec.namespace, labelSelector=_selector(spec))
        budgets, _ = await self._kube.list(DISRUPTION_BUDGETS, spec.namespace)
        is_tried = rollout is not None and rollout.strategy == "Canary" and not rollout.is_calm
        jobs = await self._owned(JOBS, spec, leftovers) if is_tried else []
        return Observed(
            deployments=deployments,
            pods=pods_of(map(ObservedPod.of, pods), deployments, spec.uid, spec.created_at),
            history=history,
            rollout=rollout,
            traffic=statuses.traffic_of(status),
            copies=statuses.copies_of(status),
            traffic_generation=status.get("trafficGeneration", 0),
            stable_spec=_stable_spec(body, spec, history, rollout),
            name_taken_by=self._name_taken_by(body, spec),
            jobs=tuple(ObservedJob.of(job) for job in jobs),
            leftovers=frozenset(leftovers),
            budget=ObservedBudget.of(
                budgets,
                engines_budget_name(spec.name),
                spec.uid,
                [pod for pod in pods if pod["metadata"]["labels"].get(ROLE_LABEL) == SERVE],
            ),
        )

    async def _owned(
        self, resource: Resource, spec: ServiceSpec, leftovers: set[tuple[str, str]]
    ) -> list[Object]:
        """The service's children of one kind. Children of a deleted service of the same name are added
        to `leftovers`. A child without an owner is neither; applying it adopts it."""
        found, _ = await self._kube.list(resource, spec.namespace, labelSelector=_selector(spec))
        foreign = [child for child in found if owner_uid(child) not in (None, spec.uid)]
        leftovers |= {(child["kind"], child["metadata"]["name"]) for child in foreign}
        return [child for child in found if owner_uid(child) == spec.uid]

    def _name_taken_by(self, mine: Object, spec: ServiceSpec) -> str | None:
        """Name of the older service in the namespace with the same served name; None without one."""
        for (namespace, name), body in self._services().items():
            if namespace != spec.namespace or name == spec.name:
                continue
            served = body["spec"]["model"].get("servedName", name)
            is_first = claim_order(body["metadata"]) < claim_order(mine["metadata"])
            if served == spec.served_name and is_first:
                return name
        return None

    async def _bring_up(
        self, spec: ServiceSpec, planned: Plan, leftovers: Collection[tuple[str, str]]
    ) -> _Outcome:
        """Apply and create the plan's objects in order. A refused object stops only its own revision.

        An object that a deleted service of the same name left is not overwritten, as that would adopt
        its pods: the write is tried again later.
        """
        for line in planned.details:
            logger.info("%s/%s: %s", spec.namespace, spec.name, line)
        outcome = _Outcome()
        unremembered: set[str] = set()
        for body in (*planned.apply, *planned.create):
            revision = body["metadata"]["labels"].get(REVISION_LABEL, "")
            if revision in unremembered:
                continue
            try:
                _require_new(body, leftovers)
                refusal = await self._write(spec, body)
            except Forbidden as error:
                refusal = conditions.forbidden(spec, str(error))
                outcome.error = outcome.error or error
                if body["kind"] == "ControllerRevision":
                    unremembered.add(revision)
            except _NotYet as error:
                outcome.error = outcome.error or error
                unremembered.add(revision)
                continue
            if refusal is not None:
                outcome.refusals.setdefault(revision, refusal)
        return outcome

    async def _write(self, spec: ServiceSpec, body: Object) -> tuple[str, str] | None:
        """Write one object. Returns (reason, message) if it is invalid. Raises KubeError."""
        if known := self._refused.get(spec.uid, body, monotonic()):
            return known
        try:
            if body["kind"] == "Pod":
                await self._kube.create(PODS, spec.namespace, body)
            else:
                await self._kube.apply(body, manager=OPERATOR_MANAGER)
        except AlreadyExists:  # an earlier attempt created it
            return None
        except Rejected as error:
            # A ControllerRevision is invalid only while a deleted service's one of its name is there.
            if body["kind"] == "ControllerRevision":
                text = f"the revision is not remembered yet: {error}"
                raise _NotYet(text) from error
            refusal = conditions.rejected(body["kind"], str(error))
            self._refused.add(spec.uid, body, refusal, monotonic())
            logger.warning("%s/%s: %s", *spec.key, refusal[1])
            return refusal
        return None

    async def _adjust(self, spec: ServiceSpec, planned: Plan, outcome: _Outcome) -> None:
        """Scale Deployments and delete objects. A refused write stops no other; it is tried again
        after the status is written."""
        for scale in planned.scale:
            try:
                await self._kube.scale(
                    DEPLOYMENTS, spec.namespace, scale.deployment, scale.replicas,
                    manager=SCALER_MANAGER,
                )  # fmt: skip
            except (Forbidden, Rejected, Conflict, NotFound) as error:
                outcome.error = outcome.error or error
        for doomed in planned.delete:
            try:
                resource = KINDS[doomed.kind]
                await self._kube.delete(resource, spec.namespace, doomed.name, uid=doomed.uid)
            except (Forbidden, Rejected) as error:
                outcome.error = outcome.error or error

    async def _write_status(
        self, key: Key, body: Object, before: Object, after: Object, revision: str | None
    ) -> bool:
        """Write the status if it changed. Returns False if the service changed meanwhile. revision:
        the spec's, None if the spec is invalid."""
        changed = {
            name: value
            for name, value in after.items()
            if _without_nulls(before.get(name)) != _without_nulls(value)
        }
        if not changed:
            return True
        # With the uid and the resource version the patch fails if the service was replaced or changed
        # meanwhile: then this status may be out of date.
        read = {name: body["metadata"][name] for name in ("uid", "resourceVersion")}
        patch = {"metadata": read, "status": changed}
        try:
            await self._kube.merge(
                INFERENCE_SERVICES, *key, patch, manager=OPERATOR_MANAGER, sub="status"
            )
        except (NotFound, Conflict):
            return False
        for kind, reason, message in statuses.new_events(before, after, revision):
            await self._events.post(body, kind, reason, message)
        return True


class _NotYet(Transient):
    """An object cannot be written yet, and neither can the others of its revision."""


def _require_new(body: Object, leftovers: Collection[tuple[str, str]]) -> None:
    """Raise _NotYet if an object of a deleted service has this object's name."""
    kind, name = body["kind"], body["metadata"]["name"]
    if (kind, name) in leftovers:
        raise _NotYet(f"the {kind} {name} of a deleted service of the same name is still there")


def _is_resumed(inputs: PlanInputs, observed: Observed) -> bool:
    """Whether there is a new `resume` command."""
    read = observed.rollout.command if observed.rollout else ""
    command = inputs.command
    return command is not None and command.action == "resume" and command.text != read


def _selector(spec: ServiceSpec) -> str:
    return f"{SERVICE_LABEL}={spec.name}"


def _stable_spec(
    body: Object,
    spec: ServiceSpec,
    history: tuple[Revision, ...],
    rollout: RolloutState | None,
) -> ServiceSpec | None:
    """What the stable revision was made of, with all else as the spec has it now."""
    stable = rollout.stable if rollout else None
    if stable == revision_of(spec):
        return spec
    shape = next((each.shape for each in history if each.revision == stable), None)
    if shape is None:
        return None
    rest = {name: value for name, value in body["spec"].items() if name not in SHAPING}
    try:
        made_of = to_core({**body, "spec": rest | shape})
    except InvalidService:
        return None
    # Another version of Penstock may have read the same spec in another way.
    return made_of if revision_of(made_of) == stable else None


def _without_nulls(value: Any) -> Any:
    """As the API server keeps it: null says that a field is to be removed."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return value
