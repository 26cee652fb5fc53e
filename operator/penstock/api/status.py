"""status: what is there, as the operator writes it."""

from typing import Literal

from pydantic import Field

from penstock.api.rules import Model
from penstock.core.reconcile.condition import REASON_PATTERN

# Pattern of a condition type in metav1.Condition: a name, with the domain of its owner or without.
TYPE_PATTERN = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


class Condition(Model):
    """Condition of the service: metav1.Condition, so that others can write theirs too."""

    type: str = Field(
        description="Type of the condition, such as Ready.", pattern=TYPE_PATTERN, max_length=316
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition holds.")
    reason: str = Field(
        description="Reason for the status, as one word for programs; see docs/reference/conditions.md.",
        pattern=REASON_PATTERN,
        min_length=1,
        max_length=1024,
    )
    message: str = Field(description="Reason for the status, as a sentence.", max_length=32768)
    last_transition_time: str = Field(
        description="Time of the last change of the status.",
        json_schema_extra={"format": "date-time"},
    )
    observed_generation: int | None = Field(
        default=None, description="Generation of the spec that the condition is about.", ge=0
    )


class TrafficTarget(Model):
    """Traffic share of a revision, or of the control pods of a canary."""

    revision: str = Field(description="Name of the revision.")
    cohort: str = Field(
        default="",
        description=(
            "`control` for the control pods of a canary, which run the stable revision; "
            "otherwise empty."
        ),
    )
    weight: int = Field(description="Traffic share in percent.", ge=0, le=100)


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
    """Engine pods of a variant."""

    name: str = Field(description="Name of the variant.")
    replicas: int = Field(description="Number of engine pods of the revisions with traffic.")
    ready_replicas: int = Field(
        description="Number of ready engine pods of the revisions with traffic."
    )


class ScalingStatus(Model):
    """Last scaling decision that changed the number of replicas or its reason."""

    desired: int = Field(description="Decided number of replicas.")
    reason: str = Field(description="Reason for the decision, as a sentence with its numbers.")
    at: str = Field(description="Time of the decision.", json_schema_extra={"format": "date-time"})
    trail: list[TrailEntry] = Field(default=[], description="Steps of the decision, in order.")
    variants: list[VariantReplicas] = Field(
        default=[], description="Replicas of each variant, if the spec has variants."
    )


class RejectedRevision(Model):
    """Revision that is not rolled out again until the spec changes."""

    revision: str = Field(description="Name of the revision.")
    reason: str = Field(description="Reason for the rejection, with its numbers.")
    at: str = Field(description="Time of the rejection.", json_schema_extra={"format": "date-time"})


class Evidence(Model):
    """Result of a statistical test of a canary. All fractions: 0.2 is 20 %."""

    metric: str = Field(description="Name of the metric that is compared.")
    effect: float = Field(
        description=(
            "Estimated increase on the canary compared with the control: relative for times "
            "and lengths, absolute for fractions of requests."
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
    e_value: float = Field(
        description=(
            "e-value of the test: the evidence that the canary is worse. At 1 it is none; "
            "the larger, the stronger."
        )
    )
    is_within: bool = Field(description="Whether the effect is shown to be below its tolerance.")


class Gate(Model):
    """Gate that a canary must pass besides its tests."""

    name: str = Field(description="Name of the metric or of the Job.")
    kind: Literal["Metric", "Evaluation"] = Field(
        description="Kind of the gate: a metric or the evaluation."
    )
    state: Literal["Waiting", "Passing", "Failing", "NoData", "Unreadable", "Failed"] = Field(
        description=(
            "State of the gate. Only Passing allows a promotion; Failed rolls the canary back."
        )
    )
    message: str = Field(description="Measured value, or the report of the Job.")


class RolloutStatus(Model):
    """State of the current or last rollout. A restarted operator continues from it."""

    strategy: Literal["Canary", "BlueGreen", "Rolling", "Recreate"] = Field(
        description="Strategy of the current or last rollout."
    )
    phase: str = Field(description="Phase of the rollout; see docs/reference/rollout-phases.md.")
    since: str = Field(
        description="Time at which the phase began.", json_schema_extra={"format": "date-time"}
    )
    reason: str = Field(description="Reason for the phase, as a sentence.")
    revision: str | None = Field(default=None, description="Revision that is rolled out.")
    replicas: int = Field(
        description="Number of replicas at the start of the rollout. Used if no scaler sets one."
    )
    weight: int = Field(
        default=0, description="Traffic weight that the canary has reached, in percent."
    )
    command: str = Field(
        default="", description="Last command of a user that was read; each is carried out once."
    )
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

    revision: str = Field(description="Name of the revision.")
    cohort: str = Field(
        default="", description="`control` for the control pods of a canary; otherwise empty."
    )


class CopiesStatus(Model):
    """Mirroring of requests, whose responses are dropped."""

    share: float = Field(description="Fraction of requests that is copied.")
    sides: list[CopiedSide] = Field(
        description="Revisions or control pods that each get a copy of these requests."
    )


class InferenceServiceStatus(Model):
    """Observed state of the service, written by the operator."""

    observed_generation: int | None = Field(
        default=None, description="Generation of the spec that this status is about."
    )
    conditions: list[Condition] = Field(
        default=[],
        description=(
            "Conditions of type SpecValid, ModelReady, WorkloadReady, TrafficAvailable, "
            "RolledOut, Reconciling, Stalled and Ready; MetricsReadable if the canary has "
            "metrics, and ScalingActive unless the mode is External."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    served_name: str | None = Field(
        default=None, description="Model name that clients send as `model`."
    )
    stable_revision: str | None = Field(
        default=None, description="Revision that serves the traffic."
    )
    candidate_revision: str | None = Field(
        default=None, description="Revision that is being rolled out."
    )
    traffic: list[TrafficTarget] = Field(
        default=[],
        description="Traffic share of each revision. Gateways split requests by it.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["revision", "cohort"],
        },
    )
    copies: CopiesStatus | None = Field(
        default=None,
        description="Mirroring of requests to a canary and its control during shadowing.",
    )
    traffic_generation: int = Field(
        default=0,
        description=(
            "Number of changes of traffic and copies. Each gateway reports the one that it "
            "routes by."
        ),
    )
    rollout: RolloutStatus | None = Field(
        default=None, description="State of the current or last rollout."
    )
    replicas: int = Field(
        default=0, description="Number of engine pods of the revisions with traffic."
    )
    ready_replicas: int = Field(
        default=0, description="Number of ready engine pods of the revisions with traffic."
    )
    variants: list[VariantStatus] = Field(
        default=[],
        description="Engine pods of each variant, if there are variants.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    selector: str = Field(
        default="", description="Label selector of the stable revision's engine pods."
    )
    scaling: ScalingStatus | None = Field(
        default=None,
        description="Last scaling decision that changed the number of replicas or its reason.",
    )
