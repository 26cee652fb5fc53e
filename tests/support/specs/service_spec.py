"""A small valid ServiceSpec, changed field by field."""

from dataclasses import replace
from typing import Any

from penstock.core.spec.resources import ResourceSpec
from penstock.core.spec.service import ScalingSpec, ServiceSpec

SMALL = ServiceSpec(
    namespace="default", name="chat", uid="u", generation=1, created_at="", model_name="chat",
    model_uri="pvc://m", settings={"engine.maxNumSeqs": 32, "engine.seed": 0},
    resources=ResourceSpec.of({}, {"cpu": "1", "memory": "1Gi"}),
    scaling=ScalingSpec("Active", 1, 9), external_replicas=1,
)  # fmt: skip


def service_spec(**changes: Any) -> ServiceSpec:
    return replace(SMALL, **changes)


def pod_resources(
    cpu: str = "1", memory: str = "1Gi", accelerator: tuple[str, int] | None = None
) -> ResourceSpec:
    """Limits of a pod, with as many of an extended resource."""
    limits = {"cpu": cpu, "memory": memory}
    return ResourceSpec.of(
        {}, limits if accelerator is None else limits | {accelerator[0]: str(accelerator[1])}
    )
