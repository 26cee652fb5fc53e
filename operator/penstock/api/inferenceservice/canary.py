"""Schema of spec.rollout.canary: how the canary is compared, and what else it has to pass."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.api.inferenceservice.gates import Evaluation, Metric
from penstock.api.schema.defaults import (
    core_default,
    core_percentage,
    default_of,
    operator_default,
    optional,
)
from penstock.api.schema.lists import listed, map_by, unique_by
from penstock.api.schema.rules import Model, Rule
from penstock.api.schema.scalars import MAX_DECIMAL_LENGTH, Percent, PositiveDuration, decimal
from penstock.core.spec.canary import CanarySpec, MirrorSpec
from penstock.core.spec.rollout import RolloutSpec

MAX_WEIGHT_PERCENT = 50


class SessionAffinity(Model):
    """Which requests stay with the same revision while weights do not change."""

    type: Literal["None", "Conversation", "User"] = Field(
        description=(
            "None: no requests. Conversation: requests of the same conversation. User: requests with the "
            "same `user`."
        )
    )


class Mirror(Model):
    """Copies of requests for the canary before it gets traffic. Their answers are dropped. The
    canary is rejected only for faults: crashes, outputs that are not numbers, and errors or empty
    answers that its control does not have."""

    percent: Percent | None = optional(
        "Percentage of the requests that is copied to the canary and to its control.",
        json_schema_extra=core_default(MirrorSpec, "percent"),
    )
    duration: PositiveDuration | None = optional(
        "Time for which requests are copied, such as 5m. Time without copies does not count.",
        json_schema_extra=core_default(MirrorSpec, "duration_s"),
    )


class Canary(Model):
    """Statistical comparison of the canary with its control. The tests are anytime-valid: a
    verdict may be reached at any time."""

    RULES = (
        Rule(
            "!has(self.minWeightPercent) || !has(self.maxWeightPercent) || "
            "self.minWeightPercent <= self.maxWeightPercent",
            lambda canary: (
                canary.min_weight_percent is None
                or canary.max_weight_percent is None
                or canary.min_weight_percent <= canary.max_weight_percent
            ),
            "minWeightPercent must not be greater than maxWeightPercent",
        ),
    )

    alpha: Annotated[str, decimal(0.0001, 0.2)] | None = optional(
        "Probability that a revision that is no worse is rolled back, over all tests "
        "and the whole rollout, as a decimal number in quotes from '0.0001' to '0.2'.",
        max_length=MAX_DECIMAL_LENGTH,
        json_schema_extra=operator_default(str(default_of(CanarySpec, "alpha"))),
    )
    latency_tolerance_percent: int | None = optional(
        "Increase of TTFT and TPOT that is tolerated, in percent. The canary is promoted when the "
        "increases are shown to be smaller.",
        ge=1,
        le=100,
        json_schema_extra=core_percentage(CanarySpec, "latency_tolerance"),
    )
    error_tolerance_percent: int | None = optional(
        "Increase of the percentage of failed requests that is tolerated, in percentage points.",
        ge=1,
        le=50,
        json_schema_extra=core_percentage(CanarySpec, "error_tolerance"),
    )
    violation_tolerance_percent: int | None = optional(
        "Increase of the percentage of requests that miss spec.objectives that is tolerated, in "
        "percentage points.",
        ge=1,
        le=50,
        json_schema_extra=core_percentage(CanarySpec, "violation_tolerance"),
    )
    min_weight_percent: int | None = optional(
        "Percentage of requests that the canary gets at the start. Its control gets the same. "
        f"Default: {round(100 * default_of(CanarySpec, 'min_weight'))}, or maxWeightPercent if "
        "that is smaller.",
        ge=1,
        le=MAX_WEIGHT_PERCENT,
    )
    max_weight_percent: int | None = optional(
        "Maximum percentage of requests that the canary gets before it is promoted. The "
        "percentage grows with the evidence.",
        ge=1,
        le=MAX_WEIGHT_PERCENT,
        json_schema_extra=core_percentage(CanarySpec, "max_weight"),
    )
    max_duration: PositiveDuration | None = optional(
        "Time after which a canary without a verdict is handled by onTimeout, such as "
        "1h or 90m. Time in which the canary or the control gets no requests does not count.",
        json_schema_extra=core_default(CanarySpec, "max_duration_s"),
    )
    on_timeout: Literal["Rollback", "Promote"] | None = optional(
        "Action for a canary that has no verdict after maxDuration.",
        json_schema_extra=core_default(CanarySpec, "on_timeout"),
    )
    comparison: Literal["FreshControl", "Stable"] | None = optional(
        "What the canary is compared with. FreshControl: new pods of the stable revision, "
        "as many as the canary's and with as much traffic. Stable: all pods of the stable "
        "revision.",
        json_schema_extra=core_default(RolloutSpec, "comparison"),
    )
    session_affinity: SessionAffinity | None = optional(
        "Which requests stay with the same revision while weights do not change. Default: none."
    )
    metrics: Annotated[list[Metric], unique_by("name")] = listed(
        "Prometheus queries whose results must stay within bounds while the canary is judged.",
        max_length=10,
        json_schema_extra=map_by("name"),
    )
    mirror: Mirror | None = optional(
        "Copies of requests for the canary before it gets traffic. Default: none."
    )
    evaluation: Evaluation | None = optional(
        "Job that tests the canary. The canary is not promoted before the Job has "
        "succeeded. Default: none."
    )
