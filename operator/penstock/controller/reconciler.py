"""One service: read what is there, plan, write, say how it stands."""

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.adapters.clock import timestamp, wall
from penstock.adapters.events import EventRecorder
from penstock.adapters.kube import DEPLOYMENTS, INFERENCE_SERVICES, PODS, Kube, Object
from penstock.api.convert import InvalidService, to_core
from penstock.core import status as statuses
from penstock.core.observed import Observed, ObservedDeployment, ObservedPod
from penstock.core.plan import Plan, plan
from penstock.core.revision import revision_of
from penstock.core.service import SERVICE_LABEL, ServiceSpec
from penstock.core.status import ScalingReport
from penstock.errors import Conflict, Forbidden, NotFound, Rejected

logger = logging.getLogger(__name__)

Key = tuple[str, str]

OPERATOR_MANAGER = "penstock-operator"
SCALER_MANAGER = "penstock-scaler"


class Reconciler:
    """Makes the cluster agree with one service at a time. Keeps nothing it could not read again."""

    def __init__(
        self,
        kube: Kube,
        engine_image: str,
        *,
        services: Callable[[], Mapping[Key, Object]],
        scaling: Callable[[Key], ScalingReport | None],
    ) -> None:
        self._kube = kube
        self._image = engine_image
        self._services = services
        self._scaling = scaling
        self._events = EventRecorder(kube, OPERATOR_MANAGER)
        self._rejections: dict[tuple[str, str], tuple[str, str]] = {}  # (uid, revision) -> why

    async def reconcile(self, key: Key) -> None:
        """Raises from `penstock.errors`; calling it again is always right."""
        try:
            body = await self._kube.get(INFERENCE_SERVICES, *key)
        except NotFound:
            return
        if "deletionTimestamp" in body["metadata"]:
            return  # children go by their owner reference
        before = body.get("status", {})
        now = timestamp(wall())
        try:
            spec = to_core(body)
        except InvalidService as error:
            tree = statuses.invalid(str(error))
            generation = body["metadata"]["generation"]
            after: Object = {
                "observedGeneration": generation,
                "conditions": statuses.as_objects(tree, before, generation, now),
            }
            await self._write_status(key, body, before, after)
            return
        observed = await self._observe(spec, before)
        forbidden = None
        try:
            await self._bring_up(spec, plan(spec, observed, self._image))
        except Rejected as error:
            self._rejections[(spec.uid, revision_of(spec))] = statuses.rejected(str(error))
            observed = replace(observed, refusal=statuses.rejected(str(error)))
        except Forbidden as error:
            forbidden = error
            observed = replace(observed, refusal=statuses.forbidden(spec, str(error)))
        planned = plan(spec, observed, self._image)
        await self._adjust(spec, planned)
        scaling = self._scaling(key) or ScalingReport.of(before)
        after = statuses.render(spec, observed, planned, scaling, before, now)
        await self._write_status(key, body, before, after)
        if forbidden is not None:
            raise forbidden  # it may be allowed later

    async def _observe(self, spec: ServiceSpec, before: Object) -> Observed:
        """Read from the API server, not from a cache: a stale list must never delete or scale."""
        selector = f"{SERVICE_LABEL}={spec.name}"
        deployments, _ = await self._kube.list(DEPLOYMENTS, spec.namespace, labelSelector=selector)
        pods, _ = await self._kube.list(PODS, spec.namespace, labelSelector=selector)
        return Observed(
            deployments=tuple(
                ObservedDeployment.of(d) for d in deployments if _owner_uid(d) == spec.uid
            ),
            pods=tuple(ObservedPod.of(p) for p in pods),
            stable_revision=before.get("stableRevision"),
            name_taken_by=self._name_taken_by(spec),
            refusal=self._rejections.get((spec.uid, revision_of(spec))),
        )

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
        """Make what is to be there, in order. Raises Rejected or Forbidden for a pod or a template."""
        for line in planned.details:
            logger.info("%s/%s: %s", spec.namespace, spec.name, line)
        for body in planned.create:
            with contextlib.suppress(Conflict):  # an earlier attempt made it
                await self._kube.create(PODS, spec.namespace, body)
        for body in planned.apply:
            await self._kube.apply(body, manager=OPERATOR_MANAGER)

    async def _adjust(self, spec: ServiceSpec, planned: Plan) -> None:
        """Set the numbers of replicas, and delete what is not to be there."""
        for scale in planned.scale:
            await self._kube.scale(
                DEPLOYMENTS, spec.namespace, scale.deployment, scale.replicas,
                manager=SCALER_MANAGER,
            )  # fmt: skip
        for doomed in planned.delete:
            resource = DEPLOYMENTS if doomed.kind == "Deployment" else PODS
            await self._kube.delete(resource, spec.namespace, doomed.name, uid=doomed.uid)

    async def _write_status(self, key: Key, body: Object, before: Object, after: Object) -> None:
        changed = {name: value for name, value in after.items() if before.get(name) != value}
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
