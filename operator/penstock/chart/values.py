"""The chart's values: the one source of values.yaml, its schema, its page, and their defaults."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic.config import JsonDict
from pydantic_core import ErrorDetails

from penstock.chart.component_values import AnyObject, Component, ValuesModel
from penstock.chart.monitoring_values import Monitoring
from penstock.chart.network_values import AdmissionPolicy, ApiPriority, NetworkPolicy
from penstock.chart.tracing_values import VARIABLES, Tracing

HostPath = Annotated[str, Field(pattern=r"^/[A-Za-z0-9@%+=:,._/-]*$")]
_NAME = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
ServiceAccount = Annotated[str, Field(pattern=rf"^({_NAME}/)?{_NAME}$")]


class InvalidValues(ValueError):
    """Values that the chart refuses; the text names each of them."""


class Image(ValuesModel):
    """The image of operator and gateway."""

    repository: str = Field(
        default="",
        description="Repository of the image, such as registry.example/penstock. Must be set: no image is "
        "published.",
        pattern=r"^[\w./:-]*$",
    )
    tag: str = Field(
        default="",
        description="Tag of the image. Empty: the version of the chart.",
        pattern=r"^[\w.-]*$",
    )
    digest: str = Field(
        default="",
        description="Digest of the image of operator and gateway; used in place of the tag.",
        pattern=r"^(sha256:[0-9a-f]{64})?$",
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="When nodes pull the image of operator and gateway."
    )


class PullSecret(ValuesModel):
    name: str = Field(description="Name of the Secret.", min_length=1)


class Crds(ValuesModel):
    """CustomResourceDefinitions."""

    enabled: bool = Field(
        default=True,
        description="Install the CRDs, and upgrade them with the chart. They stay after an uninstall.",
    )


def _if_set(name: str, url: dict[str, Any]) -> dict[str, Any]:
    """Schema that restricts `url` where another value is set."""
    return {
        "if": {"properties": {name: {"minLength": 1}}},
        "then": {"properties": {"url": url}},
    }


class Prometheus(ValuesModel):
    """A Prometheus that scrapes the engines, used when the operator cannot scrape them."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                _if_set("tokenFile", {"pattern": "^https://"}),
                _if_set("caFile", {"minLength": 1}),
            ]
        }
    )

    url: str = Field(
        default="",
        description="URL of the server. Empty: none.",
        pattern=r"^(https?://[^@\s]+)?$",
    )
    token_file: str = Field(
        default="",
        description="File with a bearer token in the operator's pod. Needs a url with https.",
        pattern=r"^(/.*)?$",
    )
    ca_file: str = Field(
        default="",
        description="File with the server's CA certificate in the operator's pod.",
        pattern=r"^(/.*)?$",
    )

    @model_validator(mode="after")
    def _check_url(self) -> Self:
        if (self.token_file or self.ca_file) and not self.url:
            raise ValueError("tokenFile and caFile need a url")
        if self.token_file and not self.url.startswith("https://"):
            raise ValueError("tokenFile needs a url with https")
        return self


class Operator(Component):
    """The operator. One replica leads, the others stand by."""

    replicas: int = Field(default=2, description="Number of replicas.", ge=1)
    resources: AnyObject = Field(
        default={"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
        description="Resources of the container.",
    )
    termination_grace_period_seconds: int = Field(
        default=10, description="Time for the pod to end after SIGTERM, in seconds.", ge=1
    )
    engine_image: str = Field(
        default="",
        description="Image of engine pods. Empty: REPOSITORY-engine:TAG with the repository and tag of "
        "`image`.",
    )
    metrics_hosts: list[str] = Field(
        default=[],
        description="HOST or HOST:PORT of each Prometheus that canaries' metric queries may use.",
    )
    allow_unrestricted_templates: bool = Field(
        default=False,
        description="Allow services any pod template, also one whose pods have more rights than the "
        "restricted Pod Security Standard gives: a user who may create a service may then create any pod.",
    )
    allowed_host_paths: list[HostPath] = Field(
        default=[],
        description="Folders of the nodes below which file:// models may be. Empty: no such models.",
    )
    allowed_service_accounts: list[ServiceAccount] = Field(
        default=[],
        description="Service accounts that spec.template of services may name, each as NAME (in any "
        "namespace) or NAMESPACE/NAME, such as team-a/model-reader. Their tokens are not mounted.",
    )
    prometheus: Prometheus = Field(
        default=Prometheus(),
        description="A Prometheus that scrapes the engines, used when the operator cannot scrape them.",
    )


class Autoscaling(ValuesModel):
    """HorizontalPodAutoscaler of the gateway."""

    enabled: bool = Field(
        default=False, description="Scale the gateway by its CPU use, in place of `replicas`."
    )
    min_replicas: int = Field(default=2, description="Minimum number of replicas.", ge=1)
    max_replicas: int = Field(default=8, description="Maximum number of replicas.", ge=1)
    target_cpu_utilization_percentage: int = Field(
        default=60,
        description="Average CPU use that the autoscaler aims at, in percent of the requested CPU. A "
        "gateway uses at most one core.",
        ge=1,
        le=100,
    )
    scale_down_stabilization_seconds: int = Field(
        default=300,
        description="Time for which a lower number must have been enough before pods are removed.",
        ge=0,
        le=3600,
    )


class GatewayService(ValuesModel):
    """Service of the gateway."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        default="ClusterIP",
        description="Type of the Service. The gateway authenticates nobody: put a proxy that does so in "
        "front of it before it is reachable from outside.",
    )
    annotations: dict[str, str] = Field(default={}, description="Annotations of the Service.")


class Gateway(Component):
    """The gateway: one OpenAI-compatible URL for all services."""

    replicas: int = Field(default=2, description="Number of replicas without autoscaling.", ge=1)
    resources: AnyObject = Field(
        default={"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        description="Resources of the container.",
    )
    termination_grace_period_seconds: int = Field(
        default=90,
        description="Time for the pod to end after SIGTERM, in seconds. At least 15 more than "
        "--drain-delay-s and --drain-timeout-s together.",
        ge=1,
    )
    port: int = Field(default=8080, description="Port of the pods.", ge=1024, le=65535)
    host_network: bool = Field(
        default=False,
        description="Listen on the node's address, for clusters without load balancers. A node then runs "
        "one gateway, pods are replaced with an interruption, and most network plugins do not apply "
        "NetworkPolicies to them.",
    )
    autoscaling: Autoscaling = Field(
        default=Autoscaling(), description="HorizontalPodAutoscaler of the gateway."
    )
    service: GatewayService = Field(default=GatewayService(), description="Service of the gateway.")


# The gateway's environment has each variable once.
_TRACING_RULE: JsonDict = {
    "if": {"properties": {"tracing": {"properties": {"endpoint": {"minLength": 1}}}}},
    "then": {
        "properties": {
            "gateway": {
                "properties": {
                    "extraEnv": {"items": {"properties": {"name": {"not": {"enum": [*VARIABLES]}}}}}
                }
            }
        }
    },
}


class Values(ValuesModel):
    """All values of the chart."""

    model_config = ConfigDict(json_schema_extra=_TRACING_RULE)

    image: Image = Field(default=Image(), description="The image of operator and gateway.")
    image_pull_secrets: list[PullSecret] = Field(
        default=[], description="Secrets with which nodes pull the image of operator and gateway."
    )
    watch_namespace: str = Field(
        default="",
        description="Namespace whose services are operated and served, with rights in this namespace "
        "only. Empty: all namespaces.",
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
    )
    crds: Crds = Field(default=Crds(), description="CustomResourceDefinitions.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level that operator and gateway log."
    )
    operator: Operator = Field(
        default=Operator(), description="The operator. One replica leads, the others stand by."
    )
    gateway: Gateway = Field(
        default=Gateway(), description="The gateway: one OpenAI-compatible URL for all services."
    )
    network_policy: NetworkPolicy = Field(
        default=NetworkPolicy(),
        description="NetworkPolicies of operator and gateway: other connections than they need are denied.",
    )
    api_priority: ApiPriority = Field(
        default=ApiPriority(), description="Priority of the operator's requests at the API server."
    )
    admission_policy: AdmissionPolicy = Field(
        default=AdmissionPolicy(), description="ValidatingAdmissionPolicy of services."
    )
    monitoring: Monitoring = Field(
        default=Monitoring(), description="Objects for Prometheus and Grafana."
    )
    tracing: Tracing = Field(
        default=Tracing(),
        description="OpenTelemetry traces of the gateway. Engines get theirs from their services.",
    )

    @model_validator(mode="after")
    def _check_variables(self) -> Self:
        set_twice = [each["name"] for each in self.gateway.extra_env if each["name"] in VARIABLES]
        if self.tracing.endpoint and set_twice:
            raise ValueError(f"gateway.extraEnv has {', '.join(set_twice)}, which tracing sets")
        return self


def complete(given: Mapping[str, Any]) -> dict[str, Any]:
    """The chart's defaults with the given values over them, as Helm merges them.

    Maps are merged, lists are replaced, and a null removes an entry of a map. Raises InvalidValues.
    """
    defaults = Values()
    values = merged(defaults.model_dump(by_alias=True), given)
    if absent := [*defaults.absent_from(values)]:
        raise InvalidValues("\n".join(f"{path}: must not be null" for path in absent))
    try:
        return Values.model_validate(values).model_dump(by_alias=True)
    except ValidationError as error:
        raise InvalidValues("\n".join(map(_message, error.errors()))) from error


def _message(error: ErrorDetails) -> str:
    path = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{path}: the chart has no such value"
    message = error["msg"].removeprefix("Value error, ")
    return f"{path}: {message}" if path else message


def merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The base with the given values over it, as Helm merges them."""
    made = dict(base)
    for key, value in given.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            made[key] = merged(base[key], value)
        else:
            made[key] = value
    return made
