"""status: what is there, as the operator writes it."""

from typing import Literal

from pydantic import Field

from penstock.api.rules import Model


class Condition(Model):
    """Condition of the service, as in other Kubernetes objects."""

    type: str = Field(description="The condition, such as Ready.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(description="Reason for the status, as one word for programs.")
    message: str = Field(description="Reason for the status, as a sentence.")
    last_transition_time: str = Field(
        description="When the status last changed.", json_schema_extra={"format": "date-time"}
    )
    observed_generation: int = Field(
        description="Generation of the spec that the condition is about."
    )


class TrafficTarget(Model):
    """Traffic share of a revision, or of the control pods of a canary."""

    revision: str = Field(description="The revision.")
    cohort: str = Field(
        default="",
        description=(
            "`control` for the pods of the stable revision that a canary is compared with, else empty."
        ),
    )
    weight: int = Field(description="Traffic share in percent.", ge=0, le=100)


class TrailEntry(Model):
    """Step of a scaling decision."""

    step: str = Field(description="The step.")
    replicas: int = Field(description="The number of replicas after this step.")
    note: str = Field(description="The numbers that the step used.")


class VariantReplicas(Model):
    """Decided number of replicas of a variant."""

    name: str = Field(description="The variant.")
    replicas: int = Field(description="Decided number of replicas.")


class VariantStatus(Model):
    """Engine pods of a variant."""

    name: str = Field(description="The variant.")
    replicas: int = Field(description="Engine pods of the revisions with traffic.")
    ready_replicas: int = Field(description="Those of them that are ready.")


class ScalingStatus(Model):
    """The last scaling decision that changed something."""

    desired: int = Field(description="Decided number of replicas.")
    reason: str = Field(description="Reason for the decision, as a sentence with its numbers.")
    at: str = Field(description="When it was decided.", json_schema_extra={"format": "date-time"})
    trail: list[TrailEntry] = Field(default=[], description="Every step that shaped the number.")
    variants: list[VariantReplicas] = Field(
        default=[], description="Replicas of each variant, if the spec has variants."
    )


class RejectedRevision(Model):
    """Revision that is not rolled out again until the spec changes."""

    revision: str = Field(description="The revision.")
    reason: str = Field(description="Reason for the rejection, with its numbers.")
    at: str = Field(description="When it was rejected.", json_schema_extra={"format": "date-time"})


class Evidence(Model):
    """Result of a statistical test of a canary. Fractions: 0.2 is 20 %."""

    metric: str = Field(description="The metric that is compared.")
    effect: float = Field(
        description=(
            "How much larger it is on the canary: of times and lengths relative to the control, of "
            "shares of requests the difference."
        )
    )
    low: float | None = Field(
        default=None, description="Lower confidence bound of the effect, if known."
    )
    high: float | None = Field(
        default=None, description="Upper confidence bound of the effect, if known."
    )
    canary_samples: int = Field(description="Number of requests on the canary.")
    control_samples: int = Field(description="Number of requests on the control.")
    e_value: float = Field(description="e-value of the test: odds, to 1, that the canary is worse.")
    is_within: bool = Field(description="Whether the effect is shown to be within its tolerance.")


class Gate(Model):
    """Gate that a canary must pass besides its tests."""

    name: str = Field(description="The metric, or the Job.")
    kind: Literal["Metric", "Evaluation"] = Field(description="Kind of the gate.")
    state: Literal["Waiting", "Passing", "Failing", "NoData", "Unreadable", "Failed"] = Field(
        description=(
            "Waiting, Failing, NoData and Unreadable hold a promotion back; Failed rolls back."
        )
    )
    message: str = Field(description="The measured value, or the report.")


class RolloutStatus(Model):
    """State of a rollout. A restarted operator continues from it."""

    strategy: Literal["Canary", "BlueGreen", "Rolling", "Recreate"] = Field(
        description="Strategy of the current or last rollout."
    )
    phase: str = Field(description="Phase of the rollout; see docs/reference/rollout-phases.md.")
    since: str = Field(
        description="When this phase began.", json_schema_extra={"format": "date-time"}
    )
    reason: str = Field(description="Why this phase began, in a sentence.")
    revision: str | None = Field(default=None, description="The revision that is rolled out.")
    replicas: int = Field(
        description="Replicas of the service at the start, used if no scaler sets them."
    )
    weight: int = Field(
        default=0, description="Traffic weight that the canary has reached, in percent."
    )
    command: str = Field(default="", description="The last command that was read.")
    rejected: RejectedRevision | None = Field(
        default=None, description="Revision that is not rolled out again until the spec changes."
    )
    evidence: list[Evidence] = Field(
        default=[], description="Results of the canary's statistical tests."
    )
    gates: list[Gate] = Field(
        default=[], description="State of the canary's metric gates and of its evaluation."
    )


class CopiedSide(Model):
    """Revision or control pods that get copies of requests."""

    revision: str = Field(description="The revision.")
    cohort: str = Field(default="", description="`control` of its control pods; else empty.")


class CopiesStatus(Model):
    """Mirroring of requests, whose responses are dropped."""

    share: float = Field(description="Fraction of requests that is copied.")
    sides: list[CopiedSide] = Field(description="Each side gets a copy of each of these requests.")


class InferenceServiceStatus(Model):
    """Observed state of the service, written by the operator."""

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
        default=None, description="The revision that is being rolled out."
    )
    traffic: list[TrafficTarget] = Field(
        default=[],
        description="Traffic share of each revision, by which gateways split requests.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["revision", "cohort"],
        },
    )
    copies: CopiesStatus | None = Field(
        default=None, description="Sides to which gateways mirror requests."
    )
    traffic_generation: int = Field(
        default=0,
        description="Counts changes of traffic and copies. Gateways report the one that they use.",
    )
    rollout: RolloutStatus | None = Field(
        default=None, description="State of the current or last rollout."
    )
    replicas: int = Field(default=0, description="Engine pods of the revisions with traffic.")
    ready_replicas: int = Field(default=0, description="Those of them that are ready.")
    variants: list[VariantStatus] = Field(
        default=[],
        description="Engine pods of each variant, if there are variants.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    selector: str = Field(default="", description="The label selector of the engine pods.")
    scaling: ScalingStatus | None = Field(
        default=None, description="The last scaling decision that changed something."
    )
