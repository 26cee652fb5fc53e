"""Reconciles one service: reads its objects, plans, writes, and updates its status."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.api.conversion.convert import InvalidService, outline, to_core
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Key
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.clients.machine.clock import monotonic, unix_time
from penstock.controller.canary.judge import Judgement
from penstock.controller.names.model_names import ModelNames
from penstock.controller.names.name_waits import NameWaits
from penstock.controller.services.accelerators import list_devices
from penstock.controller.services.acceptance import Accepted, choose_spec
from penstock.controller.services.plan_writer import Outcome, PlanWriter
from penstock.controller.services.reader import Budgets, ServiceReader
from penstock.controller.services.reconcile_log import log_writes
from penstock.controller.services.status_writer import StatusWriter
from penstock.controller.services.waiting_pods import explain_waiting_pods
from penstock.core.formats.timestamps import timestamp
from penstock.core.manifests.allowed_pods import DEFAULT_LIMITS, PodLimits
from penstock.core.observed.accepted_spec import ACCEPTED_SPEC, encoded_spec
from penstock.core.observed.children import ObservedState
from penstock.core.observed.name_claims import Standing
from penstock.core.observed.state_record import StateRecord
from penstock.core.observed.stored_status import stored_status
from penstock.core.reconcile import status as statuses
from penstock.core.reconcile.plan import Plan, PlanInputs, plan
from penstock.core.reconcile.terminating_status import render_terminating
from penstock.core.rollout import commands
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.rollout.wake import earlier_s
from penstock.core.scaling.report import ScalingReport
from penstock.core.scaling.signals import EngineReading
from penstock.core.spec.refusal import Refusal
from penstock.core.spec.service import ServiceSpec
from penstock.errors import NotFound

# A service whose model name cannot be decided yet is tried again after this time, in seconds. A new leader
# lists all objects with names in about a second.
NAMES_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Run:
    """Inputs and interim results of one reconcile."""

    key: Key
    body: Object
    accepted: Accepted  # the spec in force
    record: StateRecord  # of the status
    # scaling, judgement: the last results
    scaling: ScalingReport | None
    judgement: Judgement | None
    events_s: float | None  # delay after which Events of waiting pods are read again
    now_s: float

    @property
    def spec(self) -> ServiceSpec:
        return self.accepted.spec


class Reconciler:
    """Brings the objects of one service in line with its spec.

    All of its state can be read again. services: all services, as the watch last reported them. names: the
    model names that all objects claim. budgets: returns the PodDisruptionBudgets of a namespace.
    scaling, judgement: the last results for a service (its key and uid, or the uid of its canary's
    Deployment). applied_generations: the generation of the traffic split that each gateway applied.
    engine_readings: the last metrics of engines ("namespace/name"), of those that are known.
    with_known_state: adds the progress of fetches, and the tenants, to what is observed. gateway_url: for the
    status of services. gone: called with the key of a service whose deletion no watch reported. limits: on
    the pods of services. source_variables: of containers that fetch models. reads_nodes: whether it may list
    nodes and ResourceSlices, which say how much memory accelerators have.
    """

    def __init__(
        self,
        kube: Kube,
        engine_image: str,
        *,
        services: Callable[[], Mapping[Key, Object]],
        names: ModelNames,
        budgets: Budgets,
        scaling: Callable[[Key, str], ScalingReport | None],
        judgement: Callable[[Key, str], Judgement | None],
        applied_generations: Callable[[Key], AppliedGenerations | None],
        engine_readings: Callable[[Iterable[str]], Sequence[EngineReading]] = lambda _: (),
        with_known_state: Callable[[Key, ObservedState], ObservedState] = lambda _, observed: (
            observed
        ),
        gateway_url: str,
        gone: Callable[[Key], None],
        limits: PodLimits = DEFAULT_LIMITS,
        source_variables: Mapping[str, str] = {},
        reads_nodes: bool = False,
    ) -> None:
        self._kube = kube
        self._reads_nodes = reads_nodes
        self._image = engine_image
        self._services = services
        self._scaling = scaling
        self._judgement = judgement
        self._applied_generations = applied_generations
        self._engine_readings = engine_readings
        self._with_known_state = with_known_state
        self._gateway_url = gateway_url
        self._gone = gone
        self._limits, self._source_variables = limits, source_variables
        self._reader = ServiceReader(kube, names, budgets)
        self._writer = PlanWriter(kube)
        self._status_writer = StatusWriter(kube)
        self._name_waits = NameWaits()

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once. Idempotent.

        Returns the seconds after which to reconcile again even without a change; None if a change is
        needed. Raises KubeError.
        """
        known = self._services().get(key)
        try:
            body = await self._kube.get(INFERENCE_SERVICES, *key)
        except NotFound:
            self._name_waits.end(key)
            if known is not None and self._services().get(key) is known:
                self._gone(key)
            return None
        now_s = unix_time()
        try:
            spec, refusal = to_core(body), None
        except InvalidService as error:
            spec, refusal = outline(body), Refusal(error.reason, str(error))
        if "deletionTimestamp" in body["metadata"]:
            await self._report_terminating(key, body, spec, now_s)
            return None  # the garbage collector deletes owned objects
        return await self._reconcile(key, body, spec, refusal, now_s)

    async def _reconcile(
        self, key: Key, body: Object, spec: ServiceSpec, refusal: Refusal | None, now_s: float
    ) -> float | None:
        """Read, plan and write once. Returns the delay, as `reconcile`.

        refusal: of a spec that cannot be served. Then `spec` is what could be read of it, and the service
        goes on with the spec that was accepted last.
        """
        observed, record = await self._reader.read(body, spec, now_s)
        observed, events_s = await explain_waiting_pods(self._kube, spec.namespace, observed, now_s)
        observed = self._with_known_state(key, observed)
        chosen = choose_spec(body, spec, refusal, observed, self._limits)
        if isinstance(chosen, Refusal):
            is_written = await self._report_refused(key, body, chosen, spec, observed, now_s)
            return events_s if is_written else 0.0
        if not self._reader.record_namespace_holder(body, chosen.spec.model_name):
            return NAMES_RETRY_S
        chosen = chosen.with_fetch_settings(self._source_variables, self._limits.node_cache_path)
        observed = self._reader.with_spec(observed, chosen.body, chosen.spec)
        observed = replace(observed, violation=chosen.violation, refusal=chosen.refusal)
        canary = observed.deployment(observed.rollout.revision if observed.rollout else None)
        run = _Run(
            key,
            body,
            chosen,
            record,
            scaling=self._scaling(key, chosen.spec.uid) or ScalingReport.of(stored_status(body)),
            judgement=self._judgement(key, canary.uid) if canary else None,
            events_s=events_s,
            now_s=now_s,
        )
        return await self._write_status(run, *await self._write_plan(run, observed))

    async def _write_plan(
        self, run: _Run, observed: ObservedState
    ) -> tuple[ObservedState, Plan, Outcome]:
        """Write the plan's objects, then plan again with what was refused, and scale and delete."""
        spec, inputs = run.spec, self._plan_inputs(run)
        if _is_resumed(inputs, observed):
            self._writer.rejections.forget(spec.uid)
        observed, planned = await self._plan(spec, observed, run.now_s, inputs)
        outcome = await self._writer.create_objects(spec, planned, observed.leftovers)
        observed = replace(observed, refusals=outcome.refusals)
        planned = plan(spec, observed, self._image, run.now_s, inputs)
        await self._writer.scale_and_delete(spec, planned, outcome)
        return observed, planned, outcome

    async def _write_status(
        self, run: _Run, observed: ObservedState, planned: Plan, outcome: Outcome
    ) -> float | None:
        """Write status and record after the plan. Returns the delay, as `reconcile`."""
        spec, body = run.spec, run.body
        has_answered = planned.rollout.stable or planned.shares
        standing = Standing.ESTABLISHED if has_answered else Standing.PENDING
        if self._must_wait_for_name(run.key, body, standing, spec):
            # The status makes the service answer, so only the status waits.
            _finish(run.key, outcome, stored_status(body), planned)
            return NAMES_RETRY_S
        observed = self._reader.with_name_conflict(observed, body, standing, spec.model_name)
        last = run.record.restored(stored_status(body))
        after = self._render(run, observed, planned, last)
        await self._status_writer.write_record(
            spec, observed, run.record.updated(last, after), outcome.written
        )
        is_written = await self._status_writer.write_status(
            run.key, body, last, after, planned.revision, outcome.written
        )
        _finish(run.key, outcome, after, planned)
        if not is_written:
            return 0.0
        expiry_s = self._writer.rejections.expiry_s(spec.uid, monotonic())
        return earlier_s(earlier_s(planned.wake_s, run.events_s), expiry_s)

    def _render(self, run: _Run, observed: ObservedState, planned: Plan, last: Object) -> Object:
        """The status to write. last: the one before."""
        judgement, namespace = run.judgement, run.spec.namespace
        pods = observed.serving(planned.revision)
        return statuses.render(
            run.spec, observed, planned, run.scaling, last, timestamp(run.now_s),
            judgement.evidence if judgement else None, judgement.metrics if judgement else None,
            gateway_url=self._gateway_url,
            readings=self._engine_readings(f"{namespace}/{pod.name}" for pod in pods),
        ) | {ACCEPTED_SPEC: encoded_spec(run.accepted.body)}  # fmt: skip

    def _must_wait_for_name(
        self, key: Key, body: Object, standing: Standing, spec: ServiceSpec
    ) -> bool:
        """Whether the status has to wait until the short name is decided, which NameWaits bounds."""
        is_decided = self._reader.record_short_name_holder(body, standing, spec.model_name)
        if not is_decided and self._name_waits.may_wait(key, monotonic()):
            return True
        self._name_waits.end(key)
        return False

    async def _report_refused(
        self,
        key: Key,
        body: Object,
        refusal: Refusal,
        spec: ServiceSpec,
        observed: ObservedState,
        now_s: float,
    ) -> bool:
        """Write the status of a service with a refused spec. Returns whether it is current."""
        before = stored_status(body)
        standing = Standing.PENDING if ACCEPTED_SPEC in before else Standing.REFUSED
        observed = self._reader.with_name_conflict(observed, body, standing, None)
        after = statuses.render_refused(refusal, spec, observed, before, timestamp(now_s))
        written: list[str] = []
        is_written = await self._status_writer.write_status(key, body, before, after, None, written)
        log_writes(key, written, after, None)
        return is_written

    async def _report_terminating(
        self, key: Key, body: Object, spec: ServiceSpec, now_s: float
    ) -> None:
        """Write the status of a service that is being deleted; each change of its pods comes here."""
        observed, _ = await self._reader.read(body, spec, now_s)
        before = stored_status(body)
        after = render_terminating(spec, observed, body, before, timestamp(now_s))
        written: list[str] = []
        await self._status_writer.write_status(key, body, before, after, None, written)
        log_writes(key, written, after, None)

    async def _plan(
        self, spec: ServiceSpec, observed: ObservedState, now_s: float, inputs: PlanInputs
    ) -> tuple[ObservedState, Plan]:
        """Plan, after reading the memory of accelerators if the plan depends on it."""
        planned = plan(spec, observed, self._image, now_s, inputs)
        if not planned.unread or not self._reads_nodes:
            return observed, planned
        devices = {kind: await list_devices(self._kube, kind) for kind in planned.unread}
        observed = replace(observed, devices=devices)
        return observed, plan(spec, observed, self._image, now_s, inputs)

    def _plan_inputs(self, run: _Run) -> PlanInputs:
        annotations, scaling = run.body["metadata"].get("annotations", {}), run.scaling
        return PlanInputs(
            desired=scaling.desired if scaling else None,
            verdict=run.judgement.verdict if run.judgement else None,
            command=commands.parse_command(annotations.get(commands.ANNOTATION)),
            applied_generations=self._applied_generations(run.key),
            by_variant=scaling.by_variant if scaling else {},
        )


def _finish(key: Key, outcome: Outcome, status: Object, planned: Plan) -> None:
    """Log what was written. Raises the error of a write, which may be allowed when the work queue retries.

    status: as stored.
    """
    log_writes(key, outcome.written, status, planned.revision, planned.details)
    if outcome.error is not None:
        raise outcome.error


def _is_resumed(inputs: PlanInputs, observed: ObservedState) -> bool:
    """Whether the user gave a `resume` command that was not handled yet."""
    handled = observed.rollout.command if observed.rollout else ""
    command = inputs.command
    return command is not None and command.action == "resume" and command.text != handled
