"""The chart's values: the one source of values.yaml, its schema, its page, and their defaults."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic.config import JsonDict
from pydantic_core import ErrorDetails

from penstock.chart.api_server.values import AdmissionPolicy, ApiPriority
from penstock.chart.batch.values import Batch
from penstock.chart.component.values import ValuesModel
from penstock.chart.gateway.tracing import OTEL_VARIABLES, Tracing
from penstock.chart.gateway.values import Gateway
from penstock.chart.monitoring.values import Monitoring
from penstock.chart.names import MAX_NAMESPACE_LENGTH, NAMESPACE_PATTERN
from penstock.chart.network.values import NetworkPolicy
from penstock.chart.node_cache.values import NodeCache
from penstock.chart.operator.values import Operator


class InvalidValues(ValueError):
    """Values that the chart refuses; the text names each of them."""


class Image(ValuesModel):
    """The image of operator, gateway and batch server."""

    repository: str = Field(default="", pattern=r"^[\w./:-]*$")
    """Repository of the image, such as registry.example/penstock. Must be set: no image is published."""
    tag: str = Field(default="", pattern=r"^[\w.-]*$")
    """Tag of the image. Empty: the version of the chart."""
    digest: str = Field(default="", pattern=r"^(sha256:[0-9a-f]{64})?$")
    """Digest of the image; used in place of the tag."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When nodes pull the images of operator, gateway, batch server and node cache."""


class PullSecret(ValuesModel):
    name: str = Field(min_length=1)
    """Name of the Secret."""


class Crds(ValuesModel):
    """CustomResourceDefinitions."""

    enabled: bool = True
    """Install the CRDs, and upgrade them with the chart. They stay after an uninstall."""


class UserRoles(ValuesModel):
    """Rights of users on the kinds."""

    enabled: bool = True
    """Let users with the roles view, edit and admin of Kubernetes read and, but for view, write services,
    ModelRoutes, LoraAdapters and ExternalModels where they have these roles. Tenants they may read if they
    have one of them in the whole cluster, and write only as cluster-admin."""


class TenantRoles(ValuesModel):
    """Rights of operator and gateway on Tenants, which belong to no namespace."""

    enabled: bool = True
    """Install them with watchNamespace too, as ClusterRoles. If you may not, an administrator has to: without
    them gateways let nobody in."""


# Variables that `tracing` sets must not be in gateway.extraEnv too.
_TRACING_RULE: JsonDict = {
    "if": {"properties": {"tracing": {"properties": {"endpoint": {"minLength": 1}}}}},
    "then": {
        "properties": {
            "gateway": {
                "properties": {
                    "extraEnv": {
                        "items": {"properties": {"name": {"not": {"enum": [*OTEL_VARIABLES]}}}}
                    }
                }
            }
        }
    },
}


class Values(ValuesModel):
    """All values of the chart."""

    model_config = ConfigDict(json_schema_extra={"allOf": [_TRACING_RULE]})

    image: Image = Image()
    image_pull_secrets: list[PullSecret] = Field(default=[])
    """Secrets with which nodes pull these images."""
    watch_namespace: str = Field(
        default="", pattern=rf"^({NAMESPACE_PATTERN})?$", max_length=MAX_NAMESPACE_LENGTH
    )
    """Namespace whose services are operated and served, with rights in this namespace only, but for
    tenantRoles. Empty: all namespaces."""
    crds: Crds = Crds()
    user_roles: UserRoles = UserRoles()
    tenant_roles: TenantRoles = TenantRoles()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that operator, gateway and batch server log."""
    operator: Operator = Operator()
    gateway: Gateway = Gateway()
    node_cache: NodeCache = NodeCache()
    batch: Batch = Batch()
    network_policy: NetworkPolicy = NetworkPolicy()
    api_priority: ApiPriority = ApiPriority()
    admission_policy: AdmissionPolicy = AdmissionPolicy()
    monitoring: Monitoring = Monitoring()
    tracing: Tracing = Tracing()

    @model_validator(mode="after")
    def _check_variables(self) -> Self:
        set_twice = [
            each["name"] for each in self.gateway.extra_env if each["name"] in OTEL_VARIABLES
        ]
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
