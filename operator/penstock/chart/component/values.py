"""Values that the pods of operator, gateway and batch server have in common."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from penstock.chart.names import (
    BATCH_STORE_FOLDER,
    BATCH_STORE_VOLUME,
    BATCH_TOKEN_FOLDER,
    BATCH_TOKEN_VOLUME,
    GATEWAY_CA_FOLDER,
    GATEWAY_CA_VOLUME,
    TLS_FOLDER,
    TLS_VOLUME,
    selector,
)

AnyObject = dict[str, Any]

# Labels that the Deployments select pods by, or that say what a pod belongs to.
_RESERVED_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/part-of")
# Names that the chart sets itself: the API server refuses lists in which two items have the same name.
_RESERVED_VARIABLES = ("POD_IP", "POD_NAME", "PENSTOCK_SERVICE_ACCOUNT_DIR")
_RESERVED_VOLUMES = (
    "tmp", TLS_VOLUME, BATCH_TOKEN_VOLUME, BATCH_STORE_VOLUME, GATEWAY_CA_VOLUME,
)  # fmt: skip
_RESERVED_MOUNT_PATHS = (
    "/tmp", TLS_FOLDER, BATCH_TOKEN_FOLDER, BATCH_STORE_FOLDER, GATEWAY_CA_FOLDER,  # noqa: S108 - the pod's own
)  # fmt: skip


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    if reserved := [name for name in _RESERVED_LABELS if name in labels]:
        raise ValueError(f"{', '.join(reserved)} cannot be changed")
    return labels


PodLabels = Annotated[
    dict[str, str],
    Field(
        json_schema_extra={
            "patternProperties": {f"^{re.escape(name)}$": False for name in _RESERVED_LABELS}
        }
    ),
    AfterValidator(_check_labels),
]
# The name of a Secret or a claim, or empty.
ObjectName = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]
PriorityClassName = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")]


def _check_unreserved(reserved: tuple[str, ...], key: str) -> Callable[[AnyObject], AnyObject]:
    """Validator of a list's item, such as a volume: its name, in field `key`, must not be reserved."""

    def check(item: AnyObject) -> AnyObject:
        if not isinstance(item.get(key), str):
            raise ValueError(f"{key} must be set to a string")
        if item[key] in reserved:
            raise ValueError(f"{item[key]} is set by the chart and cannot be changed")
        return item

    return check


def _item_schema(reserved: tuple[str, ...], key: str) -> WithJsonSchema:
    """JSON schema of the items that `_check_unreserved` accepts."""
    name = {"type": "string", "not": {"enum": [*reserved]}}
    return WithJsonSchema(
        {"type": "object", "additionalProperties": True, "properties": {key: name}}
    )


ExtraVariable = Annotated[
    AnyObject,
    AfterValidator(_check_unreserved(_RESERVED_VARIABLES, "name")),
    _item_schema(_RESERVED_VARIABLES, "name"),
]
ExtraVolume = Annotated[
    AnyObject,
    AfterValidator(_check_unreserved(_RESERVED_VOLUMES, "name")),
    _item_schema(_RESERVED_VOLUMES, "name"),
]
ExtraMount = Annotated[
    AnyObject,
    AfterValidator(_check_unreserved(_RESERVED_MOUNT_PATHS, "mountPath")),
    _item_schema(_RESERVED_MOUNT_PATHS, "mountPath"),
]


class ValuesModel(BaseModel):
    """Base of all values: unknown keys and values of another type are refused.

    The docstring of a section or a value is its description.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
    )

    def absent_from(self, values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
        """Yield the paths of this model's values that `values` do not have. prefix: of the paths."""
        for name, info in type(self).model_fields.items():
            key, default = str(info.alias), getattr(self, name)
            if key not in values:
                yield f"{prefix}{key}"
            elif isinstance(default, ValuesModel) and isinstance(values[key], Mapping):
                yield from default.absent_from(values[key], f"{prefix}{key}.")


class ServiceAccount(ValuesModel):
    """ServiceAccount of the pods."""

    annotations: dict[str, str] = Field(default={})
    """Annotations of the ServiceAccount."""


def _check_unique(keys: list[str]) -> list[str]:
    if len(set(keys)) < len(keys):
        raise ValueError("must not name a label twice")
    return keys


def prefer_other_zones(name: str) -> AnyObject:
    """Affinity of pods to zones that have none of their Deployment. name: of the component.

    A node without the label is as good as any. A second key of `topologySpread` would leave such nodes out of
    the spread over nodes too.
    """
    term = {
        "topologyKey": "topology.kubernetes.io/zone",
        "labelSelector": {"matchLabels": selector(name)},
        "matchLabelKeys": ["pod-template-hash"],
    }
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


class TopologySpread(ValuesModel):
    """How pods are spread over nodes."""

    topology_keys: Annotated[list[str], AfterValidator(_check_unique)] = Field(
        default=["kubernetes.io/hostname"], json_schema_extra={"uniqueItems": True}
    )
    """Labels of nodes over whose values pods are spread evenly. Nodes that lack one of these labels take no
    part: with ScheduleAnyway, pods are not spread over them. Empty: no spread."""
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"
    """What happens to a pod that cannot be spread."""


class Component(ValuesModel):
    """Values of a Deployment."""

    replicas: int
    resources: AnyObject
    termination_grace_period_seconds: int
    extra_args: list[str] = Field(default=[])
    """Further command-line arguments of the container."""
    extra_env: list[ExtraVariable] = Field(default=[])
    """Further environment variables of the container, as in a pod."""
    extra_volumes: list[ExtraVolume] = Field(default=[])
    """Further volumes of the pod, as in a pod."""
    extra_volume_mounts: list[ExtraMount] = Field(default=[])
    """Mounts of extraVolumes in the container."""
    pod_labels: PodLabels = Field(default={})
    """Further labels of pods."""
    pod_annotations: dict[str, str] = Field(default={})
    """Annotations of pods."""
    node_selector: dict[str, str] = Field(default={})
    """Labels that a node must have to run pods."""
    tolerations: list[AnyObject] = Field(default=[])
    """Tolerations of pods."""
    affinity: AnyObject = Field(default={})
    """Affinity of pods."""
    topology_spread: TopologySpread = TopologySpread()
    priority_class_name: PriorityClassName = ""
    """PriorityClass of pods."""
    service_account: ServiceAccount = ServiceAccount()
