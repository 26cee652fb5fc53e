"""Reconciles one service: reads its objects, plans, writes, and updates its status."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from penstock.api.convert import InvalidService, spec_of_revision, to_core
from penstock.clients.clock import monotonic, unix_time
from penstock.clients.informer import Key
from penstock.clients.kube import Kube, Object
from penstock.clients.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    INFERENCE_SERVICES,
    JOBS,
    PODS,
    Resource,
)
from penstock.controller.accelerators import list_devices
from penstock.controller.judge import Judgement
from penstock.controller.plan_writer import PlanWriter
from penstock.controller.reconcile_log import log_writes
from penstock.controller.status_writer import StatusWriter
from penstock.core.formats.timestamps import timestamp
from penstock.core.manifests.allowed_pods import (
    DEFAULT_LIMITS,
    PodLimits,
    Violation,
    is_of_running_revision,
)
from penstock.core.manifests.disruption import engines_budget_name
from penstock.core.observed.children import (
    ObservedBudget,
    ObservedDeployment,
    ObservedJob,
    ObservedState,
    own_pods,
    owner_uid,
)
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.observed.state_record import StateRecord
from penstock.core.observed.stored_status import mirror_of, stored_status, traffic_of
from penstock.core.reconcile import conditions
from penstock.core.reconcile import status as statuses
from penstock.core.reconcile.plan import PlanInputs, plan
from penstock.core.rollout import commands
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.rollout.wake import earlier_s
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.claim_order import claim_order
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
from penstock.errors import NotFound


class Reconciler:
    """Brings the objects of one service in line with its spec.

    All of its state can be read again. services: all services, as the watch last reported them.
    scaling, judgement: the last results for a service (its key and uid, or the uid of its canary's
    Deployment). applied_generations: the generation of the traffic split that each gateway applied.
    gateway_url: for the status of services. gone: called with the key of a service whose deletion no watch
    reported. limits: on the pods of services. reads_nodes: whether it may list nodes and ResourceSlices,
    which say how much memory accelerators have.
    """

    def __init__(
        self,
        kube: Kube,
        engine_image: str,
        *,
        services: Callable[[], Mapping[Key, Object]],
        scaling: Callable[[Key, str], ScalingReport | None],
        judgement: Callable[[Key, str], Judgement | None],
        applied_generations: Callable[[Key], AppliedGenerations | None],
        gateway_url: str,
        gone: Callable[[Key], None],
        limits: PodLimits = DEFAULT_LIMITS,
        reads_nodes: bool = False,
    ) -> None:
        self._kube = kube
        self._reads_nodes = reads_nodes
        self._image = engine_image
        self._services = services
        self._scaling = scaling
        self._judgement = judgement
        self._applied_generations = applied_generations
        self._gateway_url = gateway_url
        self._gone = gone
        self._limits = limits
        self._status_writer = StatusWriter(kube)
        self._writer = PlanWriter(kube)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once. Idempotent.

        Returns the seconds after which to reconcile again even without a change; None if a change is
        needed. Raises KubeError.
        """
        known = self._services().get(key)
        try:
            body = await self._kube.get(INFERENCE_SERVICES, *key)
        except NotFound:
            if known is not None and self._services().get(key) is known:
                self._gone(key)
            return None
        if "deletionTimestamp" in body["metadata"]:
            return None  # the garbage collector deletes owned objects
        now_s = unix_time()
        try:
            spec = to_core(body)
        except InvalidService as error:
            violation = Violation(error.reason, str(error))
            return await self._report_invalid(key, body, violation, timestamp(now_s))
        return await self._reconcile(key, body, spec, now_s)

    async def _report_invalid(
        self, key: Key, body: Object, violation: Violation, now: str
    ) -> float | None:
        """Write the conditions of a service with a refused spec. Returns the delay, as `reconcile`."""
        before, generation = stored_status(body), body["metadata"]["generation"]
        known = {condition["type"] for condition in before.get("conditions", [])}
        current = conditions.invalid_spec_conditions(violation.message, known, violation.reason)
        after: Object = {
            "observedGeneration": generation,
            "conditions": statuses.as_objects(current, before, generation, now),
        }
        written: list[str] = []
        is_written = await self._status_writer.write_status(key, body, before, after, None, written)
        log_writes(key, written, after, None)
        return None if is_written else 0.0

    async def _reconcile(
        self, key: Key, body: Object, spec: ServiceSpec, now_s: float
    ) -> float | None:
        """Read, plan and write once for a service with a valid spec. Returns the delay, as `reconcile`."""
        observed, record = await self._observe(body, spec, now_s)
        violation = self._limits.violation(spec)
        if violation is not None:
            if not is_of_running_revision(spec, observed):
                return await self._report_invalid(key, body, violation, timestamp(now_s))
            observed = replace(observed, violation=violation.message)
        stored = stored_status(body)
        last = record.restored(stored)
        scaling = self._scaling(key, spec.uid) or ScalingReport.of(stored)
        canary = observed.deployment(observed.rollout.revision if observed.rollout else None)
        judgement = self._judgement(key, canary.uid) if canary else None
        inputs = self._plan_inputs(key, body, scaling, judgement)
        if _is_resumed(inputs, observed):
            self._writer.rejections.forget(spec.uid)
        planned = plan(spec, observed, self._image, now_s, inputs)
        if planned.unread is not None and self._reads_nodes:
            observed = replace(observed, devices=await list_devices(self._kube, planned.unread))
            planned = plan(spec, observed, self._image, now_s, inputs)
        outcome = await self._writer.create_objects(spec, planned, observed.leftovers)
        observed = replace(observed, refusals=outcome.refusals)
        planned = plan(spec, observed, self._image, now_s, inputs)
        await self._writer.scale_and_delete(spec, planned, outcome)
        after = statuses.render(
            spec, observed, planned, scaling, last, timestamp(now_s),
            judgement.evidence if judgement else None, judgement.metrics if judgement else None,
            gateway_url=self._gateway_url,
        )  # fmt: skip
        await self._status_writer.write_record(
            spec, observed, record.updated(after), outcome.written
        )
        is_written = await self._status_writer.write_status(
            key, body, last, after, planned.revision, outcome.written
        )
        log_writes(key, outcome.written, after, planned.revision, planned.details)
        if outcome.error is not None:
            raise outcome.error  # the work queue retries it: it may be allowed later
        if not is_written:
            return 0.0
        return earlier_s(planned.wake_s, self._writer.rejections.expiry_s(spec.uid, monotonic()))

    def _plan_inputs(
        self, key: Key, body: Object, scaling: ScalingReport | None, judgement: Judgement | None
    ) -> PlanInputs:
        annotations = body["metadata"].get("annotations", {})
        return PlanInputs(
            desired=scaling.desired if scaling else None,
            verdict=judgement.verdict if judgement else None,
            command=commands.parse_command(annotations.get(commands.ANNOTATION)),
            applied_generations=self._applied_generations(key),
            by_variant=scaling.by_variant if scaling else {},
        )

    async def _observe(
        self, body: Object, spec: ServiceSpec, now_s: float
    ) -> tuple[ObservedState, StateRecord]:
        """Read the service's objects from the API server: a stale cache could delete or scale wrongly."""
        leftovers: set[tuple[str, str]] = set()
        stored = await self._children(CONTROLLER_REVISIONS, spec)
        records = _owned_by(spec, stored, leftovers)
        record = StateRecord.of(records)
        status = record.restored(stored_status(body))
        rollout = RolloutState.of(status, now_s)
        history = (*map(Revision.of, records), *_orphaned_revisions(stored))
        deployments = tuple(
            ObservedDeployment.of(each) for each in await self._owned(DEPLOYMENTS, spec, leftovers)
        )
        pods, _ = await self._kube.list(PODS, spec.namespace, labelSelector=_selector(spec))
        budgets, _ = await self._kube.list(DISRUPTION_BUDGETS, spec.namespace)
        is_canary = rollout is not None and rollout.strategy == "Canary" and not rollout.is_settled
        jobs = await self._owned(JOBS, spec, leftovers) if is_canary else []
        observed = ObservedState(
            deployments=deployments,
            pods=own_pods(map(ObservedPod.of, pods), deployments, spec.uid, spec.created_at),
            history=history,
            rollout=rollout,
            traffic=traffic_of(status),
            mirror=mirror_of(status),
            traffic_generation=status.get("trafficGeneration", 0),
            stable_spec=_stable_spec(body, spec, history, rollout),
            state_holder=record.holder,
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
        return observed, record

    async def _owned(
        self, resource: Resource, spec: ServiceSpec, leftovers: set[tuple[str, str]]
    ) -> list[Object]:
        """Return the service's children of one kind. Adds those of a deleted service to `leftovers`."""
        return _owned_by(spec, await self._children(resource, spec), leftovers)

    async def _children(self, resource: Resource, spec: ServiceSpec) -> list[Object]:
        """List the objects of one kind with the service's label, with any owner or none."""
        found, _ = await self._kube.list(resource, spec.namespace, labelSelector=_selector(spec))
        return found

    def _name_taken_by(self, own: Object, spec: ServiceSpec) -> str | None:
        """Return the name of the service in the namespace that has the model name; None if it is free.

        Of several older services with that name, only the oldest has it.
        """
        claims = [
            body["metadata"]
            for (namespace, name), body in self._services().items()
            if namespace == spec.namespace
            and name != spec.name
            and body["spec"]["model"].get("name", name) == spec.model_name
        ]
        first = min([own["metadata"], *claims], key=claim_order)
        return None if first is own["metadata"] else first["name"]


def _is_resumed(inputs: PlanInputs, observed: ObservedState) -> bool:
    """Whether the user gave a `resume` command that was not handled yet."""
    handled = observed.rollout.command if observed.rollout else ""
    command = inputs.command
    return command is not None and command.action == "resume" and command.text != handled


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
