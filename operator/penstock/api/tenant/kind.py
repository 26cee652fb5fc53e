"""Schema of Tenant, serving.penstock.dev/v1alpha1."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from penstock.api.schema.conditions import Condition
from penstock.api.schema.defaults import core_default, default_of, optional
from penstock.api.schema.labels import LabelValue
from penstock.api.schema.lists import ATOMIC, SET, UNIQUE, listed, map_by, unique_by
from penstock.api.schema.names import MAX_MODEL_NAME_LENGTH, PART_NAME
from penstock.api.schema.references import ObjectName
from penstock.api.schema.rules import Model
from penstock.api.schema.scalars import Bytes, PositiveDuration
from penstock.api.tenant.identity import Identity
from penstock.core.routing.apis import API_PATHS
from penstock.core.tenants.tenant import (
    MAX_FAIR_SHARE_WEIGHT,
    MAX_PRIORITY,
    MIN_PRIORITY,
    FailureMode,
    LimitedResource,
    WindowUnit,
)
from penstock.core.tenants.tenant import Tenant as CoreTenant

KIND = "Tenant"
PLURAL = "tenants"

# Counters of a Lua script in the shared store are doubles, which are exact to 2^53.
MAX_LIMIT = 10**15
# More than any model's context.
MAX_REQUEST_TOKENS = 100_000_000


def _texts(description: str, **items: Any) -> dict[str, Any]:
    """Schema of a set of texts. items: further rules of a text."""
    return SET | {"items": {"type": "string", "description": description, **items}}


def _check_path(path: str) -> str:
    if path not in API_PATHS:
        routes = {"routes": ", ".join(API_PATHS)}
        raise PydanticCustomError("path", "must be a route of the API: {routes}", routes)
    return path


class Access(Model):
    """Models of a namespace that the tenant may use."""

    namespace: ObjectName = Field(
        description="Namespace of the models, such as team-a.", min_length=1, max_length=63
    )
    model_names: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=MAX_MODEL_NAME_LENGTH)]], UNIQUE
        ]
        | None
    ) = optional(
        "Names that clients send as `model`, of services, routes and adapters. Default: all of the "
        "namespace.",
        min_length=1,
        max_length=256,
        json_schema_extra=_texts(
            "A model name, such as chat.", minLength=1, maxLength=MAX_MODEL_NAME_LENGTH
        ),
    )
    routes: Annotated[list[Annotated[str, AfterValidator(_check_path)]], UNIQUE] | None = optional(
        "Paths of the API routes that it may use. Default: all.",
        min_length=1,
        max_length=64,
        json_schema_extra=_texts("Path, such as /v1/embeddings.", enum=list(API_PATHS)),
    )


class UsageLimit(Model):
    """Most of a resource that the tenant may use in a window of time, over all gateways."""

    name: Annotated[str, PART_NAME] = Field(
        description="Name of the limit, for metrics, messages and patches, such as per-minute.",
        min_length=1,
        max_length=63,
    )
    resource: LimitedResource = Field(
        description="What is counted. Tokens: those of prompts and outputs together."
    )
    limit: int = Field(description="Most of it in a window, such as 200000.", ge=1, le=MAX_LIMIT)
    unit: WindowUnit = Field(
        description="Window. Windows follow each other by UTC: minutes, days, months of the calendar."
    )
    model_name: str | None = optional(
        "Only model name whose requests count. Default: all together.",
        min_length=1,
        max_length=MAX_MODEL_NAME_LENGTH,
    )


class RequestLimits(Model):
    """Bounds of a single request."""

    body: Bytes | None = optional("Largest body, such as 1Mi. Default: the gateway's bound.")
    prompt_tokens: int | None = optional(
        "Most tokens of a prompt, as the gateway estimates them. Default: no bound.",
        ge=1,
        le=MAX_REQUEST_TOKENS,
    )
    output_tokens: int | None = optional(
        "Most tokens that a request may ask for; one that names no number gets this one. Default: no bound.",
        ge=1,
        le=MAX_REQUEST_TOKENS,
    )


class Concurrency(Model):
    """Bounds on the requests that the tenant has at a time."""

    max_running: int | None = optional(
        "Most requests that engines answer at a time, over all gateways. Default: no bound.",
        ge=1,
        le=1_000_000,
    )
    max_queued: int | None = optional(
        "Most requests that wait at a gateway; 0: none. Default: the gateway's bound.",
        ge=0,
        le=1_000_000,
    )
    queue_timeout: PositiveDuration | None = optional(
        "How long a request may wait at a gateway, such as 30s. Default: the gateway's bound."
    )


class TenantSpec(Model):
    """Desired state of the tenant."""

    identities: Annotated[list[Identity], unique_by("name")] = listed(
        "What clients prove to belong to the tenant; one of them is enough. Default: none, so that nobody "
        "belongs to it.",
        max_length=32,
        json_schema_extra=map_by("name"),
    )
    access: list[Access] = listed(
        "What the tenant may use. Default: nothing.", max_length=64, json_schema_extra=ATOMIC
    )
    priority: int = Field(
        default=default_of(CoreTenant, "priority"),
        description="Class of its requests: those of a higher one are served first and shed last.",
        ge=MIN_PRIORITY,
        le=MAX_PRIORITY,
    )
    fair_share_weight: int = Field(
        default=default_of(CoreTenant, "fair_share_weight"),
        description="Its share of the tokens, relative to the other tenants of its priority that wait.",
        ge=1,
        le=MAX_FAIR_SHARE_WEIGHT,
    )
    limits: Annotated[list[UsageLimit], unique_by("name")] = listed(
        "Limits of what it may use over time. Default: none.",
        max_length=32,
        json_schema_extra=map_by("name"),
    )
    request_limits: RequestLimits | None = optional("Bounds of a single request.")
    concurrency: Concurrency | None = optional("How many requests it may have at a time.")
    failure_mode: FailureMode | None = optional(
        "What happens while gateways cannot share their counts, beyond the part of a limit that each has for "
        "itself. Reject: status 429. Admit: the request is answered.",
        json_schema_extra=core_default(CoreTenant, "failure_mode"),
    )
    cost_tier: LabelValue | None = optional(
        "What its requests may cost, in a word of your own, such as economy. Rules of ModelRoutes can name "
        "it. Default: none.",
        min_length=1,
    )
    suspend: Literal["Never", "RejectNew"] | None = optional(
        "RejectNew: new requests are refused; those that run end. Default: Never."
    )


class GatewayCount(Model):
    """Gateways that apply the tenant."""

    total: int = Field(description="Number of ready gateways.")
    programmed: int = Field(description="Number of those that apply the current spec.")


class TenantStatus(Model):
    """Observed state of the tenant."""

    observed_generation: int = Field(
        default=-1, description="Generation of the spec that the status is about. -1: none yet."
    )
    gateways: GatewayCount | None = optional(
        "Gateways that apply the tenant, of all that are ready."
    )
    conditions: list[Condition] = listed(
        "Accepted, Programmed, Ready, Reconciling and Stalled.", json_schema_extra=map_by("type")
    )


class Tenant(Model):
    """Team or customer: what proves that a client belongs to it, what it may use, and how much."""

    spec: TenantSpec = Field(description="Desired state, written by administrators.")
    status: TenantStatus = Field(
        default=TenantStatus(), description="Observed state, written by the operator."
    )
