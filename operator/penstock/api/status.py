"""status: what is there, as the operator writes it."""

from typing import Literal

from pydantic import Field

from penstock.api.rules import Model


class Condition(Model):
    """One aspect of the service's state."""

    type: str = Field(description="The aspect, such as Ready.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(description="Why, in one word for machines.")
    message: str = Field(description="Why, in a sentence.")
    last_transition_time: str = Field(
        description="When the status last changed.", json_schema_extra={"format": "date-time"}
    )
    observed_generation: int = Field(description="The generation that this was said of.")


class TrafficTarget(Model):
    """The share of one revision."""

    revision: str = Field(description="The revision.")
    weight: int = Field(description="Its share in percent.", ge=0, le=100)


class TrailEntry(Model):
    """One step of a scaling decision."""

    step: str = Field(description="The step.")
    replicas: int = Field(description="The number of replicas after this step.")
    note: str = Field(description="The numbers it used.")


class ScalingStatus(Model):
    """The last scaling decision that changed something."""

    desired: int = Field(description="The number of replicas that was decided.")
    reason: str = Field(description="Why, in a sentence with its numbers.")
    at: str = Field(description="When it was decided.", json_schema_extra={"format": "date-time"})
    trail: list[TrailEntry] = Field(default=[], description="Every step that shaped the number.")


class InferenceServiceStatus(Model):
    """What is there. Written by the operator."""

    observed_generation: int | None = Field(
        default=None, description="The generation of the spec that this status is about."
    )
    conditions: list[Condition] = Field(
        default=[],
        description="SpecValid, ModelReady, WorkloadReady, TrafficAvailable, ScalingActive and Ready.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    served_name: str | None = Field(
        default=None, description="The name that clients send as `model`."
    )
    stable_revision: str | None = Field(default=None, description="The revision that serves.")
    candidate_revision: str | None = Field(
        default=None, description="The revision that is coming up."
    )
    traffic: list[TrafficTarget] = Field(
        default=[],
        description="The share of each revision. Gateways obey this and nothing else.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["revision"],
        },
    )
    replicas: int = Field(default=0, description="Engine pods of the serving revision.")
    ready_replicas: int = Field(default=0, description="Those of them that are ready.")
    selector: str = Field(default="", description="The label selector of the engine pods.")
    scaling: ScalingStatus | None = Field(
        default=None, description="The last scaling decision that changed something."
    )
