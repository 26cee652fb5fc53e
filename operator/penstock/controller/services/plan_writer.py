"""Writes the objects of a plan, and keeps one refused object from stopping the others."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import DEPLOYMENTS, KINDS, PODS
from penstock.clients.machine.clock import monotonic
from penstock.clients.machine.logs import service_fields
from penstock.controller.process.field_managers import OPERATOR_MANAGER, SCALER_MANAGER
from penstock.controller.services.rejections import RejectionCache
from penstock.core.observed.quota import exceeds_quota
from penstock.core.reconcile import conditions
from penstock.core.reconcile.plan import Plan
from penstock.core.spec.service import REVISION_LABEL, ServiceSpec
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


@dataclass(slots=True)
class Outcome:
    """Results of one plan's writes.

    written: each write, in words. refusals: (reason, message) by revision, for the status. error:
    raised after the status is written, so that the plan is tried again.
    """

    written: list[str] = field(default_factory=list)
    refusals: dict[str, tuple[str, str]] = field(default_factory=dict)
    error: KubeError | None = None


class PlanWriter:
    """Writes plans. rejections: writes that the API server rejected, which are not repeated at once."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self.rejections = RejectionCache()

    async def create_objects(
        self, spec: ServiceSpec, planned: Plan, leftovers: Collection[tuple[str, str]]
    ) -> Outcome:
        """Apply and create the plan's objects in order. A refused object stops only its own revision.

        An object of a deleted service of the same name is not overwritten, as that would adopt its
        pods: the write is tried again later.
        """
        outcome = Outcome()
        blocked: set[str] = set()  # revisions of which no more is written
        for body in (*planned.apply, *planned.create):
            revision = body["metadata"]["labels"].get(REVISION_LABEL, "")
            if revision in blocked:
                continue
            try:
                _require_new(body, leftovers)
                larger = planned.larger.get(body["metadata"]["name"])
                refusal = await self._write(spec, body, larger, outcome.written)
            except Forbidden as error:
                refusal = conditions.explain_forbidden(spec, str(error))
                outcome.error = outcome.error or error
                if body["kind"] == "ControllerRevision":
                    blocked.add(revision)
            except (_NotYet, Conflict) as error:  # a later plan reads what is there then
                outcome.error = outcome.error or error
                blocked.add(revision)
                continue
            if refusal is not None:
                outcome.refusals.setdefault(revision, refusal)
        return outcome

    async def _write(
        self, spec: ServiceSpec, body: Object, larger: Object | None, written: list[str]
    ) -> tuple[str, str] | None:
        """Write one object, and add the write to `written`.

        larger: the pod to create if this one is forbidden. Returns (reason, message) if the API server
        rejects it. Raises KubeError.
        """
        if cached := self.rejections.get(spec.uid, body, monotonic()):
            return cached
        try:
            if body["kind"] == "Pod":
                await self._create_pod(spec.namespace, body, larger)
                written.append(f"create Pod/{body['metadata']['name']}")
            else:
                await self._kube.apply(body, manager=OPERATOR_MANAGER)
                written.append(f"apply {body['kind']}/{body['metadata']['name']}")
        except AlreadyExists:  # an earlier attempt created it
            return None
        except Rejected as error:
            # Data of a ControllerRevision is immutable: a rejected one exists with other data, left by
            # a deleted service of the same name, until the garbage collector deletes it.
            if body["kind"] == "ControllerRevision":
                raise _NotYet(f"the revision is not stored yet: {error}") from error
            rejection = conditions.explain_rejection(body["kind"], str(error))
            self.rejections.add(spec.uid, body, rejection, monotonic())
            logger.warning("rejected: %s", rejection[1], extra=service_fields(spec.key))
            return rejection
        return None

    async def _create_pod(self, namespace: str, body: Object, larger: Object | None) -> None:
        try:
            await self._kube.create(PODS, namespace, body)
        except Forbidden as error:
            if larger is None or exceeds_quota(str(error)):
                raise
            await self._kube.create(PODS, namespace, larger)

    async def scale_and_delete(self, spec: ServiceSpec, planned: Plan, outcome: Outcome) -> None:
        """Scale Deployments and delete objects.

        A refused write stops no other; its error is kept in `outcome`.
        """
        for scale in planned.scale:
            try:
                await self._kube.scale(
                    DEPLOYMENTS, spec.namespace, scale.deployment, scale.replicas,
                    manager=SCALER_MANAGER,
                )  # fmt: skip
                outcome.written.append(f"scale Deployment/{scale.deployment} to {scale.replicas}")
            except (Forbidden, Rejected, Conflict, NotFound) as error:
                outcome.error = outcome.error or error
        for target in planned.delete:
            try:
                resource = KINDS[target.kind]
                await self._kube.delete(resource, spec.namespace, target.name, uid=target.uid)
                outcome.written.append(f"delete {target.kind}/{target.name}")
            except (Forbidden, Rejected) as error:
                outcome.error = outcome.error or error


class _NotYet(Transient):
    """An object cannot be written yet, so neither can the others of its revision."""


def _require_new(body: Object, leftovers: Collection[tuple[str, str]]) -> None:
    """Raise _NotYet if an object of a deleted service has this object's name."""
    kind, name = body["kind"], body["metadata"]["name"]
    if (kind, name) in leftovers:
        raise _NotYet(f"the {kind} {name} of a deleted service of the same name is still there")
