"""Schema of LoraAdapter, serving.penstock.dev/v1alpha1: its spec, and the object."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.api.loraadapter.status import LoraAdapterStatus
from penstock.api.schema.defaults import operator_default, optional
from penstock.api.schema.model_uri import FETCHED_FORMS, MAX_URI_LENGTH, MIN_URI_LENGTH, model_uri
from penstock.api.schema.names import MAX_MODEL_NAME_LENGTH, SERVICE_NAME, model_name_at
from penstock.api.schema.references import SecretRef
from penstock.api.schema.rules import Model, Obeys, Rule
from penstock.core.adapters.pool import DEFAULT_BOUNDS

KIND = "LoraAdapter"
PLURAL = "loraadapters"
MAX_NAME_LENGTH = 63
# Minimum of a dedicated pool that sets none.
LEAST_ENGINES = DEFAULT_BOUNDS.min_replicas


class ServiceRef(Model):
    """Service whose engines serve the adapter."""

    name: Annotated[str, SERVICE_NAME] = Field(
        description="Name of an InferenceService of the same namespace, such as chat.",
        min_length=1,
        max_length=40,
    )


class AdapterSource(Model):
    """The adapter's files, and its name for clients."""

    uri: Annotated[str, model_uri("spec.model.uri")] = Field(
        description=(
            "Location of the adapter's folder, with adapter_config.json and adapter_model.safetensors: "
            f"{FETCHED_FORMS}, which the operator fetches once into "
            "the cache that the service's spec.model.cache names; or pvc://CLAIM/PATH or file:///PATH, such "
            "as pvc://adapters/sql/v3, in the volume of the service's model or in one of the service's "
            "spec.engine.lora.sources. Another URI is another version of the adapter."
        ),
        min_length=MIN_URI_LENGTH,
        max_length=MAX_URI_LENGTH,
    )
    name: Annotated[str | None, model_name_at("spec.model.name")] = optional(
        "Model name that clients send as `model`, such as chat-sql. Must be unique in the namespace, "
        "among routes, services and adapters. Default: metadata.name.",
        min_length=1,
        max_length=MAX_MODEL_NAME_LENGTH,
    )
    secret_ref: SecretRef | None = optional(
        "Secret with credentials for the source of a fetched adapter, mounted only where it is fetched. Its "
        "keys are those of spec.model.secretRef of an InferenceService. It has no effect while uri is in a "
        "volume. Default: none."
    )


class AdapterPlacement(Model):
    """Number of copies. A copy is the adapter in the memory of one engine."""

    RULES = (
        Rule(
            "has(self.replicas) == (has(self.policy) && self.policy == 'Fixed')",
            lambda placement: (placement.replicas is not None) == (placement.policy == "Fixed"),
            "replicas must be set if, and only if, policy is Fixed",
        ),
        Rule(
            "!has(self.policy) || self.policy == 'OnDemand' || "
            "!(has(self.minReplicas) || has(self.maxReplicas))",
            lambda placement: (
                placement.policy in (None, "OnDemand")
                or (placement.min_replicas is None and placement.max_replicas is None)
            ),
            "minReplicas and maxReplicas require policy OnDemand; remove them, or change the policy",
        ),
        Rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            lambda placement: (
                placement.min_replicas is None
                or placement.max_replicas is None
                or placement.min_replicas <= placement.max_replicas
            ),
            "minReplicas must not be greater than maxReplicas",
        ),
    )

    policy: Literal["All", "Fixed", "OnDemand"] | None = optional(
        "All: a copy on every engine. Fixed: a fixed number of copies. OnDemand: as many copies as "
        "requests need, and none if there are no requests.",
        json_schema_extra=operator_default("OnDemand"),
    )
    replicas: int | None = optional(
        "Number of copies with policy Fixed, such as 2. At most one on each engine.", ge=1, le=1000
    )
    min_replicas: int | None = optional(
        "Minimum number of copies with policy OnDemand, loaded before requests need them.",
        ge=0,
        le=1000,
        json_schema_extra=operator_default(0),
    )
    max_replicas: int | None = optional(
        "Maximum number of copies with policy OnDemand, such as 4. Default: one on each engine.",
        ge=1,
        le=1000,
    )
    eviction: Literal["WhenIdle", "Never"] | None = optional(
        "When copies may be unloaded for another adapter. WhenIdle: while they have no requests. "
        "Never: not at all.",
        json_schema_extra=operator_default("WhenIdle"),
    )
    priority: int | None = optional(
        "Of two adapters that need the same memory, the one with the higher priority gets it.",
        ge=-1_000_000,
        le=1_000_000,
        json_schema_extra=operator_default(0),
    )


class DedicatedPool(Model):
    """Bounds on the engines of a dedicated pool."""

    RULES = (
        Rule(
            "!has(self.maxReplicas) || "
            f"(has(self.minReplicas) ? self.minReplicas : {LEAST_ENGINES}) <= self.maxReplicas",
            lambda pool: (
                pool.max_replicas is None
                or (pool.min_replicas or LEAST_ENGINES) <= pool.max_replicas
            ),
            "minReplicas must not be greater than maxReplicas",
        ),
    )

    min_replicas: int | None = optional(
        "Minimum number of engines. Requests go to the pool once so many have the adapter in memory.",
        ge=1,
        le=1000,
        json_schema_extra=operator_default(LEAST_ENGINES),
    )
    max_replicas: int | None = optional(
        "Maximum number of engines, such as 4. Default: minReplicas.", ge=1, le=1000
    )


class LoraAdapterSpec(Model):
    """Desired state of the adapter."""

    RULES = (
        Rule(
            "!has(self.dedicated) || (has(self.pool) && self.pool == 'Dedicated')",
            lambda spec: spec.dedicated is None or spec.pool == "Dedicated",
            "spec.dedicated requires spec.pool Dedicated; set it, or remove spec.dedicated",
        ),
    )

    service_ref: Annotated[
        ServiceRef,
        Obeys(
            Rule(
                "self == oldSelf",
                lambda _: True,  # one object alone changes nothing
                "serviceRef must not change; create another LoraAdapter",
            )
        ),
    ] = Field(description="Service whose engines serve the adapter. It must have spec.engine.lora.")
    model: AdapterSource = Field(description="The adapter's files, and its name for clients.")
    placement: AdapterPlacement | None = optional(
        "Number of copies on the service's engines. Default: policy OnDemand. In a dedicated pool each "
        "engine has a copy."
    )
    pool: Literal["Shared", "Dedicated"] | None = optional(
        "Engines that serve the adapter. Shared: those of the service. Dedicated: engines of its own, "
        "with the spec of the service, in an InferenceService that the operator creates.",
        json_schema_extra=operator_default("Shared"),
    )
    dedicated: DedicatedPool | None = optional(
        "Bounds on the engines of a dedicated pool. Default: one engine."
    )


class LoraAdapter(Model):
    """LoRA adapter that engines of a service load and clients use by its model name."""

    spec: LoraAdapterSpec = Field(description="Desired state, written by users.")
    status: LoraAdapterStatus = Field(
        default=LoraAdapterStatus(), description="Observed state, written by the operator."
    )
