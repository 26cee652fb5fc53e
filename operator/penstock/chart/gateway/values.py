"""Values of the gateway, its Service and its autoscaler."""

import re
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from penstock.chart.component.values import (
    AnyObject,
    Component,
    ObjectName,
    ValuesModel,
    prefer_other_zones,
)
from penstock.chart.names import GATEWAY, MAX_NAMESPACE_LENGTH, NAMESPACE_PATTERN
from penstock.core.providers.external_urls import URL_PATTERN
from penstock.core.routing.origins import ORIGIN_PATTERN
from penstock.core.routing.route_match import REGION_PATTERN
from penstock.core.tenants.api_key import KEYS_NAMESPACE

PORTS_REFUSED = "managementPort must not be port; choose another one"
BOUNDS_REFUSED = "minReplicas must not be greater than maxReplicas; raise maxReplicas"


CPU_REQUEST_MISSING = (
    "autoscaling needs resources.requests.cpu, of which it takes the CPU use in percent"
)
# s: the gateway's drain delay and drain time-out, and time for its last connections.
MIN_GRACE_PERIOD_S = 3 + 60 + 15
_DRAIN_FLAG, _DRAIN_VARIABLE = "^--drain-", "^PENSTOCK_GW_DRAIN_"


# Origin of web pages, in the form that `penstock gateway run --cors-origin` accepts.
Origin = Annotated[str, Field(pattern=ORIGIN_PATTERN)]


# Beginning of the URLs of ExternalModels, as `penstock gateway run --allowed-external-url` takes it.
ExternalUrlPrefix = Annotated[str, Field(pattern=URL_PATTERN)]


# A network or an address, as `penstock gateway run --trusted-proxy` takes it.
TrustedProxy = Annotated[str, Field(pattern=r"^[0-9a-fA-F:.]+(/[1-9][0-9]{0,2})?$")]
# An audience of tokens: a name or a URL.
Audience = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[!-~]+$")]


_STORE_URL = r"rediss?://([A-Za-z0-9_-]+@)?[A-Za-z0-9_.-]+:[0-9]{1,5}(/[0-9]{1,4})?"


class GatewayTls(ValuesModel):
    """TLS of the gateway with clients."""

    secret_name: ObjectName = ""
    """Secret of type kubernetes.io/tls in the namespace of the installation, such as one of cert-manager.
    With it the gateway serves TLS, and its Service has the port 443 in place of 80. A renewed certificate is
    loaded without a restart. Empty: plain HTTP."""


class QuotaStore(ValuesModel):
    """Redis or Valkey in which gateways share the limits of tenants, and keep the ledger of usage."""

    url: str = Field(default="", pattern=f"^({_STORE_URL})?$")
    """URL with a port and without a password, such as redis://quotas.databases:6379/0; rediss for TLS. Empty:
    each gateway has an equal part of a limit, and there is no ledger."""
    password_secret_name: ObjectName = ""
    """Secret in the namespace of the installation whose key `password` has the password. Empty: none."""


class Autoscaling(ValuesModel):
    """HorizontalPodAutoscaler of the gateway."""

    enabled: bool = False
    """Scale the gateway by its CPU use, in place of `replicas`."""
    min_replicas: int = Field(default=2, ge=1)
    """Minimum number of replicas."""
    max_replicas: int = Field(default=8, ge=1)
    """Maximum number of replicas."""
    target_cpu_utilization_percentage: int = Field(default=60, ge=1, le=100)
    """Average CPU use that the autoscaler aims at, in percent of the requested CPU. A gateway uses at most
    one core."""
    scale_down_stabilization_seconds: int = Field(default=300, ge=0, le=3600)
    """Time for which a lower number must have been enough before pods are removed."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.enabled and self.min_replicas > self.max_replicas:
            raise ValueError(BOUNDS_REFUSED)
        return self


class GatewayService(ValuesModel):
    """Service of the gateway."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service. Without Tenants the gateway is open: create one, or set requireTenants, before it
    is reachable from outside."""
    external_traffic_policy: Literal["", "Cluster", "Local"] = ""
    """Of a Service of type NodePort or LoadBalancer: with Local, the gateway and networkPolicy.gatewayFrom
    see the addresses of clients, not those of nodes. Empty: Kubernetes' default, Cluster."""
    annotations: dict[str, str] = Field(default={})
    """Annotations of the Service."""


def _has_cpu(name: str) -> JsonDict:
    """Schema of resources with a CPU among the requests or limits."""
    return {"properties": {name: {"required": ["cpu"]}}, "required": [name]}


_CPU_RULE: JsonDict = {
    "if": {"properties": {"autoscaling": {"properties": {"enabled": {"const": True}}}}},
    "then": {"properties": {"resources": {"anyOf": [_has_cpu("requests"), _has_cpu("limits")]}}},
}
_GRACE_PERIOD_RULE: JsonDict = {
    "if": {
        "properties": {
            "extraArgs": {"not": {"contains": {"pattern": _DRAIN_FLAG}}},
            "extraEnv": {
                "not": {"contains": {"properties": {"name": {"pattern": _DRAIN_VARIABLE}}}}
            },
        }
    },
    "then": {"properties": {"terminationGracePeriodSeconds": {"minimum": MIN_GRACE_PERIOD_S}}},
}


class Gateway(Component):
    """The gateway: one OpenAI-compatible URL for all services."""

    model_config = ConfigDict(json_schema_extra={"allOf": [_CPU_RULE, _GRACE_PERIOD_RULE]})

    replicas: int = Field(default=2, ge=1)
    """Number of replicas without autoscaling."""
    resources: AnyObject = Field(
        default={"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    )
    """Resources of the container."""
    affinity: AnyObject = Field(default=prefer_other_zones(GATEWAY))
    """Affinity of pods. By default they prefer zones without another of them; set podAntiAffinity to null
    for no preference."""
    termination_grace_period_seconds: int = Field(
        default=90,
        description="Time for the pod to end after SIGTERM, in seconds. At least 15 more than "
        "--drain-delay-s and --drain-timeout-s together, so "
        f"{MIN_GRACE_PERIOD_S} with their defaults.",
        ge=1,
    )
    port: int = Field(default=8080, ge=1024, le=65535)
    """Port of the pods for clients."""
    management_port: int = Field(default=8082, ge=1024, le=65535)
    """Port of the pods for probes, metrics and the operator's reads."""
    host_network: bool = False
    """Listen on the node's address, for clusters without load balancers. A node then runs one gateway, pods
    are replaced with an interruption, and most network plugins do not apply NetworkPolicies to them."""
    region: str = Field(default="", pattern=rf"^$|{REGION_PATTERN}")
    """Region of this cluster's gateways, such as eu-west, for the rules of ModelRoutes that name regions."""
    require_tenants: bool = False
    """Let nobody in while the cluster has no Tenant. Otherwise everybody who reaches the gateway may use all
    models until there is one."""
    keys_namespace: str = Field(
        default=KEYS_NAMESPACE,
        pattern=rf"^{NAMESPACE_PATTERN}$",
        max_length=MAX_NAMESPACE_LENGTH,
    )
    """Namespace of the Secrets that have the hashes of API keys. The chart creates it, and Helm keeps it. The
    gateway may list its Secrets, so it must have nothing else. Another installation in the same cluster needs
    another one."""
    cors_origins: list[Origin] = Field(default=[])
    """Origins of web pages that may use the gateway, such as https://chat.example.com; `*` for all. Without
    any, browsers let no page of another origin read its responses."""
    allowed_external_urls: list[ExternalUrlPrefix] = Field(default=[])
    """Beginnings of the URLs that ExternalModels may have, up to a slash, such as https://api.example.com or
    https://gateway.other-cluster.example.com/v1. Without any, requests leave the cluster to none of them."""
    trusted_proxies: list[TrustedProxy] = Field(default=[])
    """Networks of proxies whose X-Forwarded-For names the client, and whose headers prove identities of
    Tenants, such as 10.0.0.0/8. Without any, the address of each connection counts as the client's, and no
    header proves an identity."""
    service_account_audience: Audience = "penstock-gateway"
    """Audience that tokens of ServiceAccounts must be for, which pods name in a projected volume."""
    tls: GatewayTls = GatewayTls()
    quota_store: QuotaStore = QuotaStore()
    autoscaling: Autoscaling = Autoscaling()
    service: GatewayService = GatewayService()

    @model_validator(mode="after")
    def _check_ports(self) -> Self:
        if self.port == self.management_port:
            raise ValueError(PORTS_REFUSED)
        return self

    @model_validator(mode="after")
    def _check_cpu(self) -> Self:
        parts = (self.resources.get(name) or {} for name in ("requests", "limits"))
        if self.autoscaling.enabled and not any("cpu" in part for part in parts):
            raise ValueError(CPU_REQUEST_MISSING)
        return self

    @model_validator(mode="after")
    def _check_grace_period(self) -> Self:
        has_own_drain = any(re.match(_DRAIN_FLAG, each) for each in self.extra_args) or any(
            re.match(_DRAIN_VARIABLE, each["name"]) for each in self.extra_env
        )
        if not has_own_drain and self.termination_grace_period_seconds < MIN_GRACE_PERIOD_S:
            raise ValueError(
                f"terminationGracePeriodSeconds must be at least {MIN_GRACE_PERIOD_S}, or streams are cut; "
                "or set --drain-delay-s and --drain-timeout-s in extraArgs"
            )
        return self
