"""Schema of the status of a LoraAdapter."""

from typing import Literal

from pydantic import Field

from penstock.api.schema.conditions import Condition
from penstock.api.schema.defaults import optional
from penstock.api.schema.lists import listed, map_by
from penstock.api.schema.model_uri import MAX_URI_LENGTH
from penstock.api.schema.rollout_status import RolloutStatus
from penstock.api.schema.rules import Model
from penstock.core.reconcile.adapter_status import MAX_INSTANCES


class AdapterDemand(Model):
    """Requests for the adapter, as gateways count them."""

    requests_per_second: str = Field(
        description="Arriving requests per second over the last minute.", max_length=20
    )


class AdapterInstance(Model):
    """The adapter on one engine."""

    pod_name: str = Field(description="Name of the engine's pod.")
    revision: str | None = optional("Version of the adapter on this engine, if it is another one.")
    state: Literal["Pending", "Loading", "Loaded", "Evicted", "Failed"] = Field(
        description=(
            "Pending: a copy is wanted and its load has not begun. Loading: the engine reads the files. "
            "Loaded: in the engine's memory. Evicted: the engine reads the files again before the next "
            "request. Failed: the engine refused it, and the load is tried again later."
        )
    )
    message: str | None = optional("The engine's reason for a failed load.", max_length=1024)


class AdapterVersionStatus(Model):
    """Version of the adapter, for `penstock rollout undo`."""

    revision: str = Field(description="Hash of the URI.")
    uri: str = Field(description="Location of the version's folder.", max_length=MAX_URI_LENGTH)
    start_time: str = Field(
        description="Time at which the last rollout of the version began.",
        json_schema_extra={"format": "date-time"},
    )
    stable_time: str | None = optional(
        "Time at which the version first had all of the traffic. Unset: it never had.",
        json_schema_extra={"format": "date-time"},
    )


class FetchedAdapterVersion(Model):
    """Version of the adapter whose files were fetched."""

    revision: str = Field(description="Hash of the URI.")
    claim_name: str = Field(
        description="Name of the PersistentVolumeClaim that has the files.", max_length=253
    )
    resolved_uri: str | None = optional(
        "What the URI meant when it was fetched, such as hf://ORG/NAME@COMMIT. It names the same files at "
        "any time.",
        alias="resolvedURI",
    )


class AdapterTrafficTarget(Model):
    """Share of a version in the requests for the adapter."""

    revision: str = Field(description="Hash of the URI.")
    uri: str = Field(description="Location of the version's folder.", max_length=MAX_URI_LENGTH)
    percent: int = Field(description="Traffic share in percent.", ge=0, le=100)


class LoraAdapterStatus(Model):
    """Observed state of the adapter, written by the operator."""

    observed_generation: int | None = optional(
        "Generation of the spec that this status is about. -1: none yet."
    )
    model_name: str | None = optional(
        "Model name under which the adapter answers. Empty until an engine has read the adapter; then it "
        "stays until spec.model.name is changed."
    )
    revision: str | None = optional(
        "Hash of the adapter's URI. Engines call the version NAME@REVISION."
    )
    rank: int | None = optional("Rank of the adapter, once it was loaded.")
    size_bytes: int | None = optional(
        "Size of the adapter in an engine's memory, once it was loaded."
    )
    desired_replicas: int | None = optional("Number of copies that the operator wants.")
    loaded_replicas: int | None = optional("Number of engines that have the adapter in memory.")
    instances: list[AdapterInstance] = listed(
        "Engines that have the adapter or are to have it; at most 64 of them.",
        max_length=MAX_INSTANCES,
        json_schema_extra=map_by("podName"),
    )
    pool: Literal["Shared", "Dedicated"] | None = optional(
        "Pool that serves the adapter. After a change of spec.pool the previous pool serves until the "
        "new one can."
    )
    dedicated_service: str | None = optional(
        "Name of the InferenceService that is the dedicated pool, while there is to be one.",
        max_length=40,
    )
    pool_generation: int | None = optional(
        "Generation of pool, which each change increments. Each gateway reports the generation that it "
        "routes by. Unset: the adapter never had a dedicated pool."
    )
    pool_change_time: str | None = optional(
        "Time of the last change of pool. The engines that served before go on until all gateways have "
        "applied it, at most 30 s from then. Unset: the adapter never had a dedicated pool.",
        json_schema_extra={"format": "date-time"},
    )
    demand: AdapterDemand | None = optional(
        "Requests for the adapter. Written at most once a minute; metrics are exact."
    )
    last_used_time: str | None = optional(
        "Time of the last request that gateways counted, to the minute.",
        json_schema_extra={"format": "date-time"},
    )
    stable_revision: str | None = optional("Version that serves the traffic.")
    candidate_revision: str | None = optional("Version that is being rolled out.")
    versions: list[AdapterVersionStatus] = listed(
        "Versions for `penstock rollout undo`, the latest rollout first; at most 12.",
        max_length=12,
        json_schema_extra=map_by("revision"),
    )
    fetched_versions: list[FetchedAdapterVersion] = listed(
        "Versions whose files were fetched into the cache of the service; at most 16.",
        max_length=16,
        json_schema_extra=map_by("revision"),
    )
    traffic: list[AdapterTrafficTarget] = listed(
        "Traffic share of each version. Gateways split requests by it.",
        max_length=2,
        json_schema_extra=map_by("revision"),
    )
    traffic_generation: int | None = optional(
        "Generation of traffic, which each change increments. Each gateway reports the "
        "generation that it routes by."
    )
    rollout: RolloutStatus | None = optional("State of the current or last rollout of a version.")
    conditions: list[Condition] = listed(
        "Accepted, Resolved, Loaded, RolledOut, PoolReady, Ready, Reconciling, Stalled, and "
        "ModelNameConflict while another namespace has the model name.",
        json_schema_extra=map_by("type"),
    )
