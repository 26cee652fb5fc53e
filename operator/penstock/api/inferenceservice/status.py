"""Schema of the status of an InferenceService."""

from typing import Literal

from pydantic import Field

from penstock.api.inferenceservice.engine_status import EngineStatus
from penstock.api.schema.conditions import Condition
from penstock.api.schema.defaults import optional
from penstock.api.schema.lists import ATOMIC, listed, map_by
from penstock.api.schema.rollout_status import RolloutStatus
from penstock.api.schema.rules import Model

Cohort = Literal["Primary", "Control"]
COHORT = (
    "`Control` for the control pods of a canary, which run the stable revision; else `Primary`."
)


class TrafficTarget(Model):
    """Traffic share of a revision, or of the control pods of a canary."""

    revision: str = Field(description="Name of the revision.")
    cohort: Cohort = Field(description=COHORT)
    percent: int = Field(description="Traffic share in percent.", ge=0, le=100)


class TrailEntry(Model):
    """Step of a scaling decision."""

    step: str = Field(description="Name of the step.")
    replicas: int = Field(description="Number of replicas after this step.")
    note: str = Field(description="Numbers that the step used.")


class VariantReplicas(Model):
    """Decided number of replicas of a variant."""

    name: str = Field(description="Name of the variant.")
    replicas: int = Field(description="Decided number of replicas.")


class VariantStatus(Model):
    """Engines of a variant."""

    name: str = Field(description="Name of the variant.")
    replicas: int = Field(description="Number of engines.")
    ready_replicas: int = Field(description="Number of ready engines.")


class ScalingStatus(Model):
    """Last scaling decision that changed the number of replicas or its reason."""

    desired_replicas: int = Field(description="Decided number of replicas.")
    message: str = Field(description="Reason for the decision, as a sentence with its numbers.")
    startup_seconds: int | None = optional(
        "How long the first replica of a service at zero is expected to take, in seconds, if the spec has "
        "minReplicas 0."
    )
    last_scale_time: str = Field(
        description="Time of the decision.", json_schema_extra={"format": "date-time"}
    )
    trail: list[TrailEntry] = listed("Steps of the decision, in order.", json_schema_extra=ATOMIC)
    variants: list[VariantReplicas] = listed(
        "Replicas of each variant, if the spec has variants.", json_schema_extra=map_by("name")
    )


class MirrorTarget(Model):
    """Revision or control pods that get copies of requests."""

    revision: str = Field(description="Name of the revision.")
    cohort: Cohort = Field(description=COHORT)


class MirrorStatus(Model):
    """Mirroring of requests, whose responses are dropped."""

    percent: int = Field(description="Percentage of requests that is copied.", ge=1, le=100)
    targets: list[MirrorTarget] = Field(
        description="Revisions or control pods that each get a copy of these requests.",
        json_schema_extra=map_by("revision", "cohort"),
    )


class ModelStatus(Model):
    """Models that the pods of the spec's revision fetch. Each URI names the same files at any time."""

    resolved_uri: str | None = optional(
        "What spec.model.uri meant when the revision was rolled out, such as hf://ORG/NAME@COMMIT. All pods "
        "of the revision fetch it.",
        alias="resolvedURI",
    )
    draft_resolved_uri: str | None = optional(
        "The same of spec.engine.speculative.model.uri.", alias="draftResolvedURI"
    )


class Address(Model):
    """Address of the service."""

    url: str = Field(description="Base URL for clients of the OpenAI API.")


class InferenceServiceStatus(Model):
    """Observed state of the service, written by the operator."""

    observed_generation: int | None = optional("Generation of the spec that this status is about.")
    accepted_spec: str | None = optional(
        "Last spec that the operator accepted, in JSON. The service goes on with it while a later one "
        "is refused, which the condition SpecValid says."
    )
    conditions: list[Condition] = listed(
        "Conditions of type SpecValid, ModelReady, WorkloadReady, TrafficAvailable, "
        "RolledOut, Reconciling, Stalled and Ready; MetricsReadable if the canary has "
        "metrics, ScalingActive unless the mode is External, ObjectivesAttainable if it has "
        "objectives too, and ModelNameConflict while another namespace has the model name, "
        "or may have it.",
        json_schema_extra=map_by("type"),
    )
    url: str | None = optional("Base URL for clients of the OpenAI API, within the cluster.")
    addresses: list[Address] = listed(
        "All addresses of the service.", json_schema_extra=map_by("url")
    )
    model_name: str | None = optional("Model name that clients send as `model`.")
    model: ModelStatus | None = optional("Models that are fetched. Absent if they are in volumes.")
    stable_revision: str | None = optional("Revision that serves the traffic.")
    candidate_revision: str | None = optional("Revision that is being rolled out.")
    traffic: list[TrafficTarget] = listed(
        "Traffic share of each revision. Gateways split requests by it.",
        json_schema_extra=map_by("revision", "cohort"),
    )
    mirror: MirrorStatus | None = optional(
        "Mirroring of requests to a canary and its control before it gets traffic."
    )
    traffic_generation: int | None = optional(
        "Generation of traffic and mirroring, which each change increments. Each gateway "
        "reports the generation that it routes by."
    )
    rollout: RolloutStatus | None = optional("State of the current or last rollout.")
    engine: EngineStatus | None = optional(
        "Engine settings in effect: of the spec, of the check of the model, or by default."
    )
    desired_replicas: int | None = optional("Number of replicas that all of the traffic needs.")
    replicas: int | None = optional("Number of engines, of all revisions.")
    ready_replicas: int | None = optional("Number of ready engines, of all revisions.")
    variants: list[VariantStatus] = listed(
        "Engines of each variant, if there are variants.", json_schema_extra=map_by("name")
    )
    selector: str | None = optional(
        "Label selector of the pods of the engines that `replicas` counts."
    )
    scaling: ScalingStatus | None = optional(
        "Last scaling decision that changed the number of replicas or its reason."
    )
