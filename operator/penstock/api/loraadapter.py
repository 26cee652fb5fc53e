"""Schema of LoraAdapter, serving.penstock.dev/v1alpha1."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.api.defaults import operator_default
from penstock.api.lists import map_by
from penstock.api.model_uri import model_uri
from penstock.api.names import SERVICE_NAME, model_name_at
from penstock.api.rollout_status import RolloutStatus
from penstock.api.rules import Model, Obeys, Rule
from penstock.api.status import Condition

KIND = "LoraAdapter"
PLURAL = "loraadapters"
MAX_NAME_LENGTH = 63
# Bound on the pods in the status; further copies are only counted.
MAX_INSTANCES = 64


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
            "pvc://CLAIM/PATH or file:///PATH, such as pvc://adapters/sql/v3. It must be in the volume of "
            "the service's model, or in one of the service's spec.engine.lora.sources. Another URI is "
            "another version of the adapter."
        ),
        min_length=8,
        max_length=512,
    )
    name: Annotated[str | None, model_name_at("spec.model.name")] = Field(
        default=None,
        description=(
            "Model name that clients send as `model`, such as chat-sql. Must be unique in the namespace, "
            "among routes, services and adapters. Default: metadata.name."
        ),
        min_length=1,
        max_length=128,
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

    policy: Literal["All", "Fixed", "OnDemand"] | None = Field(
        default=None,
        description=(
            "All: a copy on every engine. Fixed: a fixed number of copies. OnDemand: as many copies as "
            "requests need, and none if there are no requests."
        ),
        json_schema_extra=operator_default("OnDemand"),
    )
    replicas: int | None = Field(
        default=None,
        description="Number of copies with policy Fixed, such as 2. At most one on each engine.",
        ge=1,
        le=1000,
    )
    min_replicas: int | None = Field(
        default=None,
        description="Minimum number of copies with policy OnDemand, loaded before requests need them.",
        ge=0,
        le=1000,
        json_schema_extra=operator_default(0),
    )
    max_replicas: int | None = Field(
        default=None,
        description=(
            "Maximum number of copies with policy OnDemand, such as 4. Default: one on each engine."
        ),
        ge=1,
        le=1000,
    )
    eviction: Literal["WhenIdle", "Never"] | None = Field(
        default=None,
        description=(
            "When copies may be unloaded for another adapter. WhenIdle: while they have no requests. "
            "Never: not at all."
        ),
        json_schema_extra=operator_default("WhenIdle"),
    )
    priority: int | None = Field(
        default=None,
        description="Of two adapters that need the same memory, the one with the higher priority gets it.",
        ge=-1_000_000,
        le=1_000_000,
        json_schema_extra=operator_default(0),
    )


class DedicatedPool(Model):
    """Bounds on the engines of a dedicated pool."""

    RULES = (
        Rule(
            "!has(self.maxReplicas) || (has(self.minReplicas) ? self.minReplicas : 1) <= self.maxReplicas",
            lambda pool: pool.max_replicas is None or (pool.min_replicas or 1) <= pool.max_replicas,
            "minReplicas must not be greater than maxReplicas",
        ),
    )

    min_replicas: int | None = Field(
        default=None,
        description=(
            "Minimum number of engines. Requests go to the pool once so many have the adapter in memory."
        ),
        ge=1,
        le=1000,
        json_schema_extra=operator_default(1),
    )
    max_replicas: int | None = Field(
        default=None,
        description="Maximum number of engines, such as 4. Default: minReplicas.",
        ge=1,
        le=1000,
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
    placement: AdapterPlacement | None = Field(
        default=None,
        description=(
            "Number of copies on the service's engines. Default: policy OnDemand. In a dedicated pool each "
            "engine has a copy."
        ),
    )
    pool: Literal["Shared", "Dedicated"] | None = Field(
        default=None,
        description=(
            "Engines that serve the adapter. Shared: those of the service. Dedicated: engines of its own, "
            "with the spec of the service, in an InferenceService that the operator creates."
        ),
        json_schema_extra=operator_default("Shared"),
    )
    dedicated: DedicatedPool | None = Field(
        default=None,
        description="Bounds on the engines of a dedicated pool. Default: one engine.",
    )


class AdapterDemand(Model):
    """Requests for the adapter, as gateways count them."""

    requests_per_second: str = Field(
        description="Arriving requests per second over the last minute.", max_length=20
    )


class AdapterInstance(Model):
    """The adapter on one engine."""

    pod_name: str = Field(description="Name of the engine's pod.")
    revision: str | None = Field(
        default=None, description="Version of the adapter on this engine, if it is another one."
    )
    state: Literal["Pending", "Loading", "Loaded", "Evicted", "Failed"] = Field(
        description=(
            "Pending: a copy is wanted and its load has not begun. Loading: the engine reads the files. "
            "Loaded: in the engine's memory. Evicted: the engine reads the files again before the next "
            "request. Failed: the engine refused it, and the load is tried again later."
        )
    )
    message: str | None = Field(
        default=None, description="The engine's reason for a failed load.", max_length=1024
    )


class AdapterVersionStatus(Model):
    """Version of the adapter, for `penstock rollout undo`."""

    revision: str = Field(description="Hash of the URI.")
    uri: str = Field(description="Location of the version's folder.", max_length=512)
    start_time: str = Field(
        description="Time at which the last rollout of the version began.",
        json_schema_extra={"format": "date-time"},
    )
    stable_time: str | None = Field(
        default=None,
        description="Time at which the version first had all of the traffic. Unset: it never had.",
        json_schema_extra={"format": "date-time"},
    )


class AdapterTrafficTarget(Model):
    """Share of a version in the requests for the adapter."""

    revision: str = Field(description="Hash of the URI.")
    uri: str = Field(description="Location of the version's folder.", max_length=512)
    percent: int = Field(description="Traffic share in percent.", ge=0, le=100)


class LoraAdapterStatus(Model):
    """Observed state of the adapter, written by the operator."""

    observed_generation: int | None = Field(
        default=None, description="Generation of the spec that this status is about. -1: none yet."
    )
    model_name: str | None = Field(
        default=None, description="Model name that clients send as `model`."
    )
    revision: str | None = Field(
        default=None,
        description="Hash of the adapter's URI. Engines call the version NAME@REVISION.",
    )
    rank: int | None = Field(default=None, description="Rank of the adapter, once it was loaded.")
    size_bytes: int | None = Field(
        default=None, description="Size of the adapter in an engine's memory, once it was loaded."
    )
    desired_replicas: int | None = Field(
        default=None, description="Number of copies that the operator wants."
    )
    loaded_replicas: int | None = Field(
        default=None, description="Number of engines that have the adapter in memory."
    )
    instances: list[AdapterInstance] = Field(
        default=[],
        description="Engines that have the adapter or are to have it; at most 64 of them.",
        max_length=MAX_INSTANCES,
        json_schema_extra=map_by("podName"),
    )
    pool: Literal["Shared", "Dedicated"] | None = Field(
        default=None,
        description=(
            "Pool that serves the adapter. After a change of spec.pool the previous pool serves until the "
            "new one can."
        ),
    )
    dedicated_service: str | None = Field(
        default=None,
        description="Name of the InferenceService that is the dedicated pool, while there is to be one.",
        max_length=40,
    )
    pool_generation: int | None = Field(
        default=None,
        description=(
            "Generation of pool, which each change increments. Each gateway reports the generation that it "
            "routes by. Unset: the adapter never had a dedicated pool."
        ),
    )
    demand: AdapterDemand | None = Field(
        default=None,
        description="Requests for the adapter. Written at most once a minute; metrics are exact.",
    )
    last_used_time: str | None = Field(
        default=None,
        description="Time of the last request that gateways counted, to the minute.",
        json_schema_extra={"format": "date-time"},
    )
    stable_revision: str | None = Field(
        default=None, description="Version that serves the traffic."
    )
    candidate_revision: str | None = Field(
        default=None, description="Version that is being rolled out."
    )
    versions: list[AdapterVersionStatus] = Field(
        default=[],
        description="Versions for `penstock rollout undo`, the latest rollout first; at most 12.",
        max_length=12,
        json_schema_extra=map_by("revision"),
    )
    traffic: list[AdapterTrafficTarget] = Field(
        default=[],
        description="Traffic share of each version. Gateways split requests by it.",
        max_length=2,
        json_schema_extra=map_by("revision"),
    )
    traffic_generation: int | None = Field(
        default=None,
        description=(
            "Generation of traffic, which each change increments. Each gateway reports the "
            "generation that it routes by."
        ),
    )
    rollout: RolloutStatus | None = Field(
        default=None, description="State of the current or last rollout of a version."
    )
    conditions: list[Condition] = Field(
        default=[],
        description="Accepted, Resolved, Loaded, RolledOut, PoolReady, Ready, Reconciling and Stalled.",
        json_schema_extra=map_by("type"),
    )


class LoraAdapter(Model):
    """LoRA adapter that engines of a service load and clients use by its model name."""

    spec: LoraAdapterSpec = Field(description="Desired state, written by users.")
    status: LoraAdapterStatus = Field(
        default=LoraAdapterStatus(), description="Observed state, written by the operator."
    )
