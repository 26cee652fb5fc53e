"""One service: read what is there, plan, write, say how it stands."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.adapters.clock import wall
from penstock.adapters.events import EventRecorder
from penstock.adapters.kube import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    JOBS,
    KINDS,
    PODS,
    Kube,
    Object,
    Resource,
)
from penstock.api.convert import SHAPING, InvalidService, to_core
from penstock.controller.judge import Judgement
from penstock.core import conditions
from penstock.core import status as statuses
from penstock.core.history import Revision
from penstock.core.observed import Observed, ObservedDeployment, ObservedJob, ObservedPod
from penstock.core.plan import Plan, Told, plan
from penstock.core.revision import revision_of
from penstock.core.rollout import commands
from penstock.core.rollout.routes import Obeyed
from penstock.core.rollout.state import RolloutState
from penstock.core.scaling_report import ScalingReport
from penstock.core.service import SERVICE_LABEL, ServiceSpec
from penstock.core.timestamps import timestamp
from penstock.errors import Conflict, Forbidden, NotFound, Rejected, Transient

logger = logging.getLogger(__name__)

Key = tuple[str, str]

OPERATOR_MANAGER = "penstock-operator"
SCALER_MANAGER = "penstock-scaler"


class _Refused(Exception):
    """The API server will not have an object of this kind, as it is."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class Reconciler:
    """Makes the cluster agree with one service at a time. Keeps nothing it could not read again."""

    def __init__(
        self,
        kube: Kube,
        engine_image: str,
        *,
        services: Callable[[], Mapping[Key, Object]],
        scaling: Callable[[Key], ScalingReport | None],
        judgement: Callable[[Key, str], Judgement | None],
        obeyed: Callable[[Key], Obeyed | None],
    ) -> None:
        self._kube = kube
        self._image = engine_image
        self._services = services
        self._scaling = scaling
        self._judgement = judgement
        self._obeyed = obeyed
        self._events = EventRecorder(kube, OPERATOR_MANAGER)
        self._rejections: dict[tuple[str, str], tuple[str, str]] = {}  # (uid, revision) -> why

    async def reconcile(self, key: Key) -> float | None:
        """Seconds until it has to be called again though nothing changes; None: it need not.

        Raises from `penstock.errors`; calling it again is always right.
        """
        try:
            body = await self._kube.get(INFERENCE_SERVICES, *key)
        except NotFound:
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
            await self._write_status(key, body, before, after)
            return None
        observed = await self._observe(body, spec, now_s)
        scaling = self._scaling(key) or ScalingReport.of(before)
        canary = observed.deployment(observed.rollout.revision if observed.rollout else None)
        said = self._judgement(key, canary.uid) if canary else None
        told = Told(
            desired=scaling.desired if scaling else None,
            verdict=said.verdict if said else None,
            command=commands.read(body["metadata"].get("annotations", {}).get(commands.ANNOTATION)),
            obeyed=self._obeyed(key),
            by_variant=scaling.by_variant if scaling else {},
        )
        forbidden = None
        try:
            await self._bring_up(spec, plan(spec, observed, self._image, now_s, told))
        except _Refused as refused:
            refusal = conditions.rejected(refused.kind, refused.message)
            if refused.kind != "Job":  # that is mended without another revision
                self._rejections[(spec.uid, revision_of(spec))] = refusal
            observed = replace(observed, refusal=refusal)
        except Forbidden as error:
            forbidden = error
            observed = replace(observed, refusal=conditions.forbidden(spec, str(error)))
        planned = plan(spec, observed, self._image, now_s, told)
        await self._adjust(spec, planned)
        after = statuses.render(
            spec, observed, planned, scaling, before, now,
            said.evidence if said else None, said.metrics if said else None,
        )  # fmt: skip
        await self._write_status(key, body, before, after)
        if forbidden is not None:
            raise forbidden  # it may be allowed later
        return planned.wake_s

    async def _observe(self, body: Object, spec: ServiceSpec, now_s: float) -> Observed:
        """Read from the API server, not from a cache: a stale list must never delete or scale."""
        status = body.get("status", {})
        rollout = RolloutState.of(status, now_s)
        history = tuple(Revision.of(r) for r in await self._owned(CONTROLLER_REVISIONS, spec))
        deployments = await self._owned(DEPLOYMENTS, spec)
        pods, _ = await self._kube.list(PODS, spec.namespace, labelSelector=_selector(spec))
        is_tried = rollout is not None and rollout.strategy == "Canary" and not rollout.is_calm
        jobs = await self._owned(JOBS, spec) if is_tried else []
        return Observed(
            deployments=tuple(ObservedDeployment.of(d) for d in deployments),
            pods=tuple(ObservedPod.of(p) for p in pods),
            history=history,
            rollout=rollout,
            traffic=statuses.traffic_of(status),
            copies=statuses.copies_of(status),
            traffic_generation=status.get("trafficGeneration", 0),
            stable_spec=_stable_spec(body, spec, history, rollout),
            name_taken_by=self._name_taken_by(spec),
            refusal=self._rejections.get((spec.uid, revision_of(spec))),
            jobs=tuple(ObservedJob.of(job) for job in jobs),
        )

    async def _owned(self, resource: Resource, spec: ServiceSpec) -> list[Object]:
        found, _ = await self._kube.list(resource, spec.namespace, labelSelector=_selector(spec))
        return [child for child in found if _owner_uid(child) == spec.uid]

    def _name_taken_by(self, spec: ServiceSpec) -> str | None:
        """The older service of the namespace that serves the same name."""
        for (namespace, name), body in self._services().items():
            if namespace != spec.namespace or name == spec.name:
                continue
            served = body["spec"]["model"].get("servedName", name)
            age = (body["metadata"]["creationTimestamp"], body["metadata"]["uid"])
            if served == spec.served_name and age < (spec.created_at, spec.uid):
                return name
        return None

    async def _bring_up(self, spec: ServiceSpec, planned: Plan) -> None:
        """Make what is to be there, in order. Raises _Refused or Forbidden for what makes pods."""
        for line in planned.details:
            logger.info("%s/%s: %s", spec.namespace, spec.name, line)
        for body in planned.apply:
            try:
                await self._kube.apply(body, manager=OPERATOR_MANAGER)
            except Rejected as error:
                if body["kind"] == "ControllerRevision":  # of a service of the name that is going
                    raise Transient(f"the revision is not remembered yet: {error}") from error
                raise _Refused(body["kind"], str(error)) from error
        for body in planned.create:
            try:
                await self._kube.create(PODS, spec.namespace, body)
            except Conflict:  # an earlier attempt made it
                continue
            except Rejected as error:
                raise _Refused("Pod", str(error)) from error

    async def _adjust(self, spec: ServiceSpec, planned: Plan) -> None:
        """Set the numbers of replicas, and delete what is not to be there."""
        for scale in planned.scale:
            await self._kube.scale(
                DEPLOYMENTS, spec.namespace, scale.deployment, scale.replicas,
                manager=SCALER_MANAGER,
            )  # fmt: skip
        for doomed in planned.delete:
            resource = KINDS[doomed.kind]
            await self._kube.delete(resource, spec.namespace, doomed.name, uid=doomed.uid)

    async def _write_status(self, key: Key, body: Object, before: Object, after: Object) -> None:
        changed = {
            name: value
            for name, value in after.items()
            if _without_nulls(before.get(name)) != _without_nulls(value)
        }
        if not changed:
            return
        # The uid in the patch refuses a service that was deleted and made again meanwhile.
        patch = {"metadata": {"uid": body["metadata"]["uid"]}, "status": changed}
        try:
            await self._kube.merge(
                INFERENCE_SERVICES, *key, patch, manager=OPERATOR_MANAGER, sub="status"
            )
        except (NotFound, Conflict):
            return
        for kind, reason, message in statuses.notable(before, after):
            await self._events.post(body, kind, reason, message)


def _owner_uid(child: Object) -> str | None:
    owners = child["metadata"].get("ownerReferences", [])
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)


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
