"""The scaler's targets, from Kopf's indices of services, deployments and pods."""

from collections.abc import Iterable, Mapping

from penstock.adapters.kube import Object
from penstock.api.convert import InvalidService, to_core
from penstock.controller.scaler import Key, ScaleTarget
from penstock.core.observed import ObservedDeployment, ObservedPod
from penstock.core.service import ENGINE_PORT, SERVE, SERVICE_LABEL
from penstock.core.status import ScalingReport


def scale_targets(
    services: Mapping[Key, Object], deployments: Iterable[Object], pods: Iterable[Object]
) -> list[ScaleTarget]:
    """Services whose serving revision exists and whose replicas Penstock decides."""
    by_service: dict[Key, list[ObservedPod]] = {}
    for pod in pods:
        by_service.setdefault(_service_of(pod), []).append(ObservedPod.of(pod))
    serving = {}
    for body in deployments:
        deployment = ObservedDeployment.of(body)
        serving[(*_service_of(body), deployment.revision)] = deployment
    targets = []
    for key, body in services.items():
        status = body.get("status", {})
        stable = serving.get((*key, status.get("stableRevision", "")))
        try:
            spec = to_core(body)
        except InvalidService:
            continue
        if stable is None or spec.scaling.mode == "External":
            continue
        targets.append(
            ScaleTarget(
                key=key,
                spec=spec.scaling,
                deployment=stable.name,
                provisioned=stable.replicas,
                engines=tuple(
                    (pod.name, f"{pod.address}:{ENGINE_PORT}")
                    for pod in by_service.get(key, [])
                    if pod.is_ready
                    and not pod.is_ending
                    and pod.role == SERVE
                    and pod.revision == stable.revision
                ),
                reported=ScalingReport.of(status),
            )
        )
    return targets


def _service_of(child: Object) -> Key:
    metadata = child["metadata"]
    return metadata["namespace"], metadata["labels"].get(SERVICE_LABEL, "")
