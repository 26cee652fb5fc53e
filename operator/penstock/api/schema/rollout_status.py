"""Schema of status.rollout: the current or last rollout, with its tests and gates."""

from typing import Literal

from pydantic import Field

from penstock.api.schema.defaults import optional
from penstock.api.schema.lists import listed, map_by
from penstock.api.schema.rules import Model
from penstock.core.observed.rollout_phases import Phase


class RejectedRevision(Model):
    """Revision that is not rolled out again until the spec changes."""

    revision: str = Field(description="Name of the revision.")
    message: str = Field(description="Reason for the rejection, with its numbers.")
    rejection_time: str = Field(
        description="Time of the rejection.", json_schema_extra={"format": "date-time"}
    )


class Evidence(Model):
    """Result of a statistical test of a canary. All fractions: 0.2 is 20 %."""

    metric: str = Field(description="Name of the metric that is compared.")
    effect: float = Field(
        description=(
            "Estimated increase on the canary compared with the control: relative for times "
            "and lengths, absolute for fractions of requests."
        )
    )
    low: float | None = optional("Lower confidence bound of the effect, if known.")
    high: float | None = optional("Upper confidence bound of the effect, if known.")
    canary_samples: int = Field(description="Number of requests on the canary.")
    control_samples: int = Field(description="Number of requests on the control.")
    e_value: float = Field(
        description=(
            "e-value of the test: the evidence that the canary is worse. At 1 it is none; "
            "the larger, the stronger."
        )
    )
    verdict: Literal["Within", "Undecided", "Beyond"] = Field(
        description="Whether the effect is shown to be within its tolerance, or beyond it."
    )


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
        description=(
            "Strategy of the current or last rollout. Before a second revision there is none: the field has "
            "Recreate, and for a service that is up the strategy of its spec."
        )
    )
    phase: Phase = Field(description="Phase of the rollout; see docs/reference/rollout-phases.md.")
    phase_transition_time: str = Field(
        description="Time at which the phase began.", json_schema_extra={"format": "date-time"}
    )
    message: str = Field(description="Reason for the phase, as a sentence.")
    revision: str | None = optional("Revision that is rolled out.")
    replicas: int = Field(
        description="Number of replicas at the start of the rollout. Used if no scaler sets one."
    )
    weight_percent: int | None = optional("Traffic share that the canary has reached, in percent.")
    command: str | None = optional(
        "Last command of a user that was read; each is carried out once."
    )
    rejected: RejectedRevision | None = optional(
        "Revision that is not rolled out again until the spec changes."
    )
    evidence: list[Evidence] = listed(
        "Results of the canary's statistical tests.", json_schema_extra=map_by("metric")
    )
    gates: list[Gate] = listed(
        "State of the canary's metric gates and of its evaluation.",
        json_schema_extra=map_by("kind", "name"),
    )
