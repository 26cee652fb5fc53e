"""Values that the operator's and the gateway's pods have in common."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

AnyObject = dict[str, Any]

# Labels that the Deployments select pods by, or that say what a pod belongs to.
_OWN_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/part-of")


def _without_own_labels(labels: dict[str, str]) -> dict[str, str]:
    if own := [name for name in _OWN_LABELS if name in labels]:
        raise ValueError(f"{', '.join(own)} cannot be changed")
    return labels


class ValuesModel(BaseModel):
    """Base of all values: unknown keys and values of another type are refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, strict=True)


class ServiceAccount(ValuesModel):
    """ServiceAccount of the pods."""

    annotations: dict[str, str] = Field(
        default={}, description="Annotations of the ServiceAccount."
    )


class TopologySpread(ValuesModel):
    """How pods are spread."""

    topology_keys: list[str] = Field(
        default=["kubernetes.io/hostname", "topology.kubernetes.io/zone"],
        description="Labels of nodes over whose values pods are spread evenly. Empty: no spread.",
    )
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = Field(
        default="ScheduleAnyway", description="What happens to a pod that cannot be spread."
    )


class Component(ValuesModel):
    """Values of a Deployment."""

    replicas: int
    resources: AnyObject
    termination_grace_period_seconds: int
    extra_args: list[str] = Field(
        default=[], description="Further command-line arguments of the container."
    )
    extra_env: list[AnyObject] = Field(
        default=[], description="Further environment variables of the container, as in a pod."
    )
    extra_volumes: list[AnyObject] = Field(
        default=[], description="Further volumes of the pod, as in a pod."
    )
    extra_volume_mounts: list[AnyObject] = Field(
        default=[], description="Mounts of extraVolumes in the container."
    )
    pod_labels: Annotated[dict[str, str], AfterValidator(_without_own_labels)] = Field(
        default={},
        description="Further labels of pods.",
        json_schema_extra={
            "patternProperties": {f"^{re.escape(name)}$": False for name in _OWN_LABELS}
        },
    )
    pod_annotations: dict[str, str] = Field(default={}, description="Annotations of pods.")
    node_selector: dict[str, str] = Field(
        default={}, description="Labels that a node must have to run pods."
    )
    tolerations: list[AnyObject] = Field(default=[], description="Tolerations of pods.")
    affinity: AnyObject = Field(default={}, description="Affinity of pods.")
    topology_spread: TopologySpread = Field(
        default=TopologySpread(), description="How pods are spread over nodes and zones."
    )
    priority_class_name: str = Field(default="", description="PriorityClass of pods.")
    service_account: ServiceAccount = Field(
        default=ServiceAccount(), description="ServiceAccount of the pods."
    )
