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
    cohort: str = Field(
        default="",
        description=(
            "`control` for the pods of the stable revision that a canary is compared with, else empty."
        ),
    )
    weight: int = Field(description="Its share in percent.", ge=0, le=100)


class TrailEntry(Model):
    """One step of a scaling decision."""

    step: str = Field(description="The step.")
    replicas: int = Field(description="The number of replicas after this step.")
    note: str = Field(description="The numbers it used.")


class VariantReplicas(Model):
    """What was decided of one variant."""

    name: str = Field(description="The variant.")
    replicas: int = Field(description="The number of its replicas that was decided.")


class VariantStatus(Model):
    """What there is of one variant."""

    name: str = Field(description="The variant.")
    replicas: int = Field(description="Its engine pods of the revisions with traffic.")
    ready_replicas: int = Field(description="Those of them that are ready.")


class ScalingStatus(Model):
    """The last scaling decision that changed something."""

    desired: int = Field(description="The number of replicas that was decided.")
    reason: str = Field(description="Why, in a sentence with its numbers.")
    at: str = Field(description="When it was decided.", json_schema_extra={"format": "date-time"})
    trail: list[TrailEntry] = Field(default=[], description="Every step that shaped the number.")
    variants: list[VariantReplicas] = Field(
        default=[], description="The number of each variant, where the spec has some."
    )


class RejectedRevision(Model):
    """A revision that is not tried again until the spec asks for another."""

    revision: str = Field(description="The revision.")
    reason: str = Field(description="Why, with the numbers it was decided on.")
    at: str = Field(description="When it was rejected.", json_schema_extra={"format": "date-time"})


class Evidence(Model):
    """What one test holds for or against a canary. Fractions: 0.2 is 20 %."""

    metric: str = Field(description="What is compared.")
    effect: float = Field(
        description=(
            "How much larger it is on the canary: of times and lengths relative to the control, of "
            "shares of requests the difference."
        )
    )
    low: float | None = Field(default=None, description="The effect is at least this, where known.")
    high: float | None = Field(default=None, description="The effect is at most this, where known.")
    canary_samples: int = Field(description="Requests on the canary that this rests on.")
    control_samples: int = Field(description="Requests on its control that this rests on.")
    e_value: float = Field(description="The odds against the canary: it is worse by so much to 1.")
    is_within: bool = Field(description="Whether it is shown to stay within its tolerance.")


class Gate(Model):
    """What a canary has to pass besides its tests."""

    name: str = Field(description="The metric, or the Job.")
    kind: Literal["Metric", "Evaluation"] = Field(description="What it is.")
    state: Literal["Waiting", "Passing", "Failing", "NoData", "Unreadable", "Failed"] = Field(
        description=(
            "Waiting, Failing, NoData and Unreadable hold a promotion back; Failed rolls back."
        )
    )
    message: str = Field(description="What was measured, or reported.")


class RolloutStatus(Model):
    """How one revision takes over from another. The next operator goes on from here."""

    strategy: Literal["Canary", "BlueGreen", "Rolling", "Recreate"] = Field(
        description="The strategy of the rollout that is under way, or was the last."
    )
    phase: str = Field(description="Where it stands; see docs/reference/rollout-phases.md.")
    since: str = Field(
        description="When this phase began.", json_schema_extra={"format": "date-time"}
    )
    reason: str = Field(description="Why this phase began, in a sentence.")
    revision: str | None = Field(default=None, description="The revision that is rolled out.")
    replicas: int = Field(
        description="The replicas of the service when it began, for where no scaler sets them."
    )
    weight: int = Field(default=0, description="The share that a canary has earned, in percent.")
    command: str = Field(default="", description="The last command that was read.")
    rejected: RejectedRevision | None = Field(
        default=None, description="The revision that is not tried again until the spec changes."
    )
    evidence: list[Evidence] = Field(default=[], description="What the tests of a canary hold.")
    gates: list[Gate] = Field(
        default=[], description="How a canary's own metrics and its evaluation stand."
    )


class CopiedSide(Model):
    """Who gets copies."""

    revision: str = Field(description="The revision.")
    cohort: str = Field(default="", description="`control` of its control pods; else empty.")


class CopiesStatus(Model):
    """Copies of requests, whose answers are dropped."""

    share: float = Field(description="The share of requests that is copied.")
    sides: list[CopiedSide] = Field(description="Each gets a copy of each of them.")


class InferenceServiceStatus(Model):
    """What is there. Written by the operator."""

    observed_generation: int | None = Field(
        default=None, description="The generation of the spec that this status is about."
    )
    conditions: list[Condition] = Field(
        default=[],
        description=(
            "SpecValid, ModelReady, WorkloadReady, TrafficAvailable, RolledOut, ScalingActive, "
            "Stalled and Ready; MetricsReadable where a canary has metrics of its own."
        ),
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
        description="The share of each revision, by which gateways split requests.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["revision", "cohort"],
        },
    )
    copies: CopiesStatus | None = Field(
        default=None, description="What is shown copies of requests. Gateways obey this as well."
    )
    traffic_generation: int = Field(
        default=0,
        description="Counts the changes of traffic and copies. Gateways say which one they obey.",
    )
    rollout: RolloutStatus | None = Field(
        default=None, description="How a revision takes over, or took over last."
    )
    replicas: int = Field(default=0, description="Engine pods of the revisions with traffic.")
    ready_replicas: int = Field(default=0, description="Those of them that are ready.")
    variants: list[VariantStatus] = Field(
        default=[],
        description="Engine pods of each variant, where there are some.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    selector: str = Field(default="", description="The label selector of the engine pods.")
    scaling: ScalingStatus | None = Field(
        default=None, description="The last scaling decision that changed something."
    )
