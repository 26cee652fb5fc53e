"""Schema of spec.rollout: the strategy of a rollout and its settings."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.api.inferenceservice.gates import Evaluation, Metric
from penstock.api.schema.defaults import default_of, operator_default
from penstock.api.schema.lists import map_by, unique_by
from penstock.api.schema.rules import Model, Obeys, Rule, matches
from penstock.api.schema.scalars import (
    MAX_DECIMAL_LENGTH,
    Duration,
    IntOrPercent,
    Percent,
    PositiveDuration,
    decimal,
)
from penstock.core.spec.canary import CanarySpec, MirrorSpec
from penstock.core.spec.rollout import RolloutSpec

# Headers that must not name the tenant, because the tenant's name is stored with the evidence.
SECRET_HEADERS = ["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"]
MAX_WEIGHT_PERCENT = 50
_ZERO = "^0+%?$"


def _default(record: type, attribute: str) -> dict[str, Any]:
    """The `json_schema_extra` of a field with a default in core. Times are shown in seconds."""
    value = default_of(record, attribute)
    return operator_default(f"{value:.0f}s" if attribute.endswith("_s") else value)


def _percentage(attribute: str) -> dict[str, Any]:
    return operator_default(round(100 * default_of(CanarySpec, attribute)))


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

    percent: Percent | None = Field(
        default=None,
        description=("Percentage of the requests that is copied to the canary and to its control."),
        json_schema_extra=_default(MirrorSpec, "percent"),
    )
    duration: PositiveDuration | None = Field(
        default=None,
        description="Time for which requests are copied, such as 5m. Time without copies does not count.",
        json_schema_extra=_default(MirrorSpec, "duration_s"),
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

    alpha: Annotated[str, decimal(0.0001, 0.2)] | None = Field(
        default=None,
        description=(
            "Probability that a revision that is no worse is rolled back, over all tests "
            "and the whole rollout, as a decimal number in quotes from '0.0001' to '0.2'."
        ),
        max_length=MAX_DECIMAL_LENGTH,
        json_schema_extra=operator_default(str(default_of(CanarySpec, "alpha"))),
    )
    latency_tolerance_percent: int | None = Field(
        default=None,
        description=(
            "Increase of TTFT and TPOT that is tolerated, in percent. The canary is promoted when the "
            "increases are shown to be smaller."
        ),
        ge=1,
        le=100,
        json_schema_extra=_percentage("latency_tolerance"),
    )
    error_tolerance_percent: int | None = Field(
        default=None,
        description=(
            "Increase of the percentage of failed requests that is tolerated, in percentage points."
        ),
        ge=1,
        le=50,
        json_schema_extra=_percentage("error_tolerance"),
    )
    violation_tolerance_percent: int | None = Field(
        default=None,
        description=(
            "Increase of the percentage of requests that miss spec.objectives that is tolerated, in "
            "percentage points."
        ),
        ge=1,
        le=50,
        json_schema_extra=_percentage("violation_tolerance"),
    )
    min_weight_percent: int | None = Field(
        default=None,
        description=(
            "Percentage of requests that the canary gets at the start. Its control gets the same. "
            f"Default: {round(100 * default_of(CanarySpec, 'min_weight'))}, or maxWeightPercent if "
            "that is smaller."
        ),
        ge=1,
        le=MAX_WEIGHT_PERCENT,
    )
    max_weight_percent: int | None = Field(
        default=None,
        description=(
            "Maximum percentage of requests that the canary gets before it is promoted. The "
            "percentage grows with the evidence."
        ),
        ge=1,
        le=MAX_WEIGHT_PERCENT,
        json_schema_extra=_percentage("max_weight"),
    )
    max_duration: PositiveDuration | None = Field(
        default=None,
        description=(
            "Time after which a canary without a verdict is handled by onTimeout, such as "
            "1h or 90m. Time in which the canary or the control gets no requests does not count."
        ),
        json_schema_extra=_default(CanarySpec, "max_duration_s"),
    )
    on_timeout: Literal["Rollback", "Promote"] | None = Field(
        default=None,
        description="Action for a canary that has no verdict after maxDuration.",
        json_schema_extra=_default(CanarySpec, "on_timeout"),
    )
    comparison: Literal["FreshControl", "Stable"] | None = Field(
        default=None,
        description=(
            "What the canary is compared with. FreshControl: new pods of the stable revision, "
            "as many as the canary's and with as much traffic. Stable: all pods of the stable "
            "revision."
        ),
        json_schema_extra=_default(RolloutSpec, "comparison"),
    )
    session_affinity: SessionAffinity | None = Field(
        default=None,
        description=(
            "Which requests stay with the same revision while weights do not change. Default: none."
        ),
    )
    metrics: Annotated[list[Metric], unique_by("name")] = Field(
        default=[],
        description=(
            "Prometheus queries whose results must stay within bounds while the canary is judged."
        ),
        max_length=10,
        json_schema_extra=map_by("name"),
    )
    tenant_header: (
        Annotated[
            str,
            Obeys(
                matches(
                    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                    "must be the name of a header in lower case, such as x-tenant",
                ),
                Rule(
                    f"!(self in {json.dumps(SECRET_HEADERS)})",
                    lambda name: name not in SECRET_HEADERS,
                    "must not be a header that holds a secret",
                ),
            ),
        ]
        | None
    ) = Field(
        default=None,
        description=(
            "Request header that names the tenant, such as x-tenant, for `penstock rollout "
            "status --by tenant`. Its values are stored with the evidence, so the header "
            "must not contain a secret. Default: none."
        ),
        max_length=63,
    )
    mirror: Mirror | None = Field(
        default=None,
        description="Copies of requests for the canary before it gets traffic. Default: none.",
    )
    evaluation: Evaluation | None = Field(
        default=None,
        description=(
            "Job that tests the canary. The canary is not promoted before the Job has "
            "succeeded. Default: none."
        ),
    )


class BlueGreen(Model):
    """Settings of BlueGreen rollouts."""

    promotion: Literal["Automatic", "Manual"] | None = Field(
        default=None,
        description=(
            "When the traffic is switched. Automatic: as soon as all pods are ready. Manual: by "
            "`penstock rollout promote`."
        ),
        json_schema_extra=_default(RolloutSpec, "promotion"),
    )
    scale_down_delay: Duration | None = Field(
        default=None,
        description=(
            "Time for which the old pods are kept after the switch, such as 5m. A rollback "
            "within that time needs no new pods."
        ),
        json_schema_extra=_default(RolloutSpec, "scale_down_delay_s"),
    )


def _is_zero(amount: int | str | None) -> bool:
    return amount is not None and bool(re.fullmatch(_ZERO, str(amount), re.ASCII))


class Rolling(Model):
    """Settings of Rolling rollouts."""

    RULES = (
        Rule(
            f"!has(self.maxSurge) || !string(self.maxSurge).matches('{_ZERO}') || "
            f"(has(self.maxUnavailable) && !string(self.maxUnavailable).matches('{_ZERO}'))",
            lambda rolling: (
                not _is_zero(rolling.max_surge)
                or not (rolling.max_unavailable is None or _is_zero(rolling.max_unavailable))
            ),
            "maxSurge and maxUnavailable must not both be 0",
        ),
    )

    max_surge: IntOrPercent | None = Field(
        default=None,
        description=(
            "Maximum number of replicas above the desired number during the rollout, or a percentage of "
            "that number, rounded up."
        ),
        json_schema_extra=_default(RolloutSpec, "max_surge"),
    )
    max_unavailable: (
        Annotated[
            IntOrPercent,
            Obeys(
                Rule(
                    "type(self) == int || self.matches('^0*([0-9]{1,2}|100)%$')",
                    lambda value: isinstance(value, int) or int(value.rstrip("%")) <= 100,
                    "must not be more than 100%",
                )
            ),
        ]
        | None
    ) = Field(
        default=None,
        description=(
            "Number of replicas by which the ready ones may fall below the desired number during the "
            "rollout, or a percentage of that number, rounded down. Used only if new pods cannot be "
            "scheduled otherwise."
        ),
        json_schema_extra=_default(RolloutSpec, "max_unavailable"),
    )


def _only_with(strategy: str, member: str, attribute: str) -> Rule:
    """Rule that a member of the union is set only with its strategy.

    The strategy comes second: the API server checks the default of an object before it fills in the
    defaults of its fields.
    """
    return Rule(
        f"!has(self.{member}) || self.strategy == '{strategy}'",
        lambda rollout: getattr(rollout, attribute) is None or rollout.strategy == strategy,
        f"spec.rollout.{member} requires strategy {strategy}; remove it, or set the strategy",
    )


class Rollout(Model):
    """How a new revision replaces the old one."""

    RULES = (
        _only_with("Canary", "canary", "canary"),
        _only_with("BlueGreen", "blueGreen", "blue_green"),
        _only_with("Rolling", "rolling", "rolling"),
    )

    strategy: Literal["Canary", "BlueGreen", "Rolling", "Recreate"] = Field(
        default=default_of(RolloutSpec, "strategy"),
        description=(
            "Rolling replaces pods a few at a time. Canary compares the revisions on a part "
            "of the requests first. BlueGreen starts all new pods, then switches the "
            "traffic. Recreate stops the old pods before it starts new ones. The first "
            "revision of a service is started without a strategy."
        ),
    )
    canary: Canary | None = Field(
        default=None,
        description="Settings of Canary rollouts. Refused with another strategy.",
    )
    blue_green: BlueGreen | None = Field(
        default=None,
        description="Settings of BlueGreen rollouts. Refused with another strategy.",
    )
    rolling: Rolling | None = Field(
        default=None,
        description="Settings of Rolling rollouts. Refused with another strategy.",
    )
    progress_deadline: PositiveDuration | None = Field(
        default=None,
        description=(
            "Maximum time until the next pod of a new revision becomes ready, such as "
            "10m. After that the revision is rejected; a first revision, and one of "
            "Recreate, stalls the service until its pods come up."
        ),
        json_schema_extra=_default(RolloutSpec, "progress_deadline_s"),
    )
    revision_history_limit: int | None = Field(
        default=None,
        description="Number of earlier revisions that are kept for `penstock rollout undo`.",
        ge=0,
        le=100,
        json_schema_extra=_default(RolloutSpec, "history"),
    )
