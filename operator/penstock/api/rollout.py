"""spec.rollout: how a new revision takes over, and what it has to show for that."""

import json
from typing import Annotated, Literal

from pydantic import Field

from penstock.api.gates import Evaluation, Metric
from penstock.api.rules import Model, Obeys, Rule, matches, positive_duration
from penstock.core.formats.quantity import DURATION_PATTERN
from penstock.core.spec.canary import CanarySpec, ShadowSpec
from penstock.core.spec.rollout import RolloutSpec

# Never told apart by: their values would be written down.
SECRET_HEADERS = ["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"]

_CANARY, _SHADOW, _ROLLOUT = CanarySpec(), ShadowSpec(), RolloutSpec()


def _duration(field: str, example: str) -> Obeys:
    return Obeys(matches(DURATION_PATTERN, f"{field} must be a duration such as {example}"))


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.0f}s"


def _at_least(field: str, least: float) -> Obeys:
    """The API server compares a whole number with a fraction as whole numbers: 0 passes `ge`."""
    return Obeys(
        Rule(
            f"self >= {least}",
            lambda value: value >= least,
            f"spec.rollout.canary.{field} must be at least {least}",
        )
    )


class Shadow(Model):
    """Shadowing before the canary gets traffic: it gets copies of requests, whose answers are
    dropped. It is rejected only for faults: crashes, outputs that are not numbers, and errors
    or empty answers that its control does not have."""

    share: Annotated[float, _at_least("shadow.share", 0.001)] = Field(
        default=_SHADOW.share,
        description="Fraction of requests that is copied to the canary and to its control.",
        ge=0.001,
        le=1.0,
    )
    duration: Annotated[str, positive_duration("spec.rollout.canary.shadow.duration", "5m")] = (
        Field(
            default=_seconds(_SHADOW.duration_s),
            description="Duration of shadowing, such as 5m. Time without copies does not count.",
            max_length=20,
        )
    )


class Canary(Model):
    """Statistical comparison of the canary with its control. The tests are anytime-valid: a
    verdict may be reached at any time."""

    alpha: Annotated[float, _at_least("alpha", 0.0001)] = Field(
        default=_CANARY.alpha,
        description=(
            "Probability that a revision that is no worse is rolled back, over all tests "
            "and the whole rollout."
        ),
        ge=0.0001,
        le=0.2,
    )
    tolerance: Annotated[float, _at_least("tolerance", 0.01)] = Field(
        default=_CANARY.tolerance,
        description=(
            "Increase of TTFT and TPOT that is tolerated, as a fraction: 0.1 is 10 %. The "
            "canary is promoted when the increases are shown to be smaller."
        ),
        ge=0.01,
        le=1.0,
    )
    error_tolerance: Annotated[float, _at_least("errorTolerance", 0.001)] = Field(
        default=_CANARY.error_tolerance,
        description=(
            "Increase of the fraction of failed requests that is tolerated: 0.01 is one "
            "percentage point."
        ),
        ge=0.001,
        le=0.5,
    )
    violation_tolerance: Annotated[float, _at_least("violationTolerance", 0.01)] = Field(
        default=_CANARY.violation_tolerance,
        description=(
            "Increase of the fraction of requests that miss spec.objectives that is "
            "tolerated: 0.05 is five percentage points."
        ),
        ge=0.01,
        le=0.5,
    )
    min_weight: Annotated[float, _at_least("minWeight", 0.01)] = Field(
        default=_CANARY.min_weight,
        description=(
            "Fraction of requests that the canary gets at the start. Its control gets the same."
        ),
        ge=0.01,
        le=0.5,
    )
    max_weight: Annotated[float, _at_least("maxWeight", 0.01)] = Field(
        default=_CANARY.max_weight,
        description=(
            "Maximum fraction of requests that the canary gets before it is promoted. The "
            "fraction grows with the evidence."
        ),
        ge=0.01,
        le=0.5,
    )
    max_duration: Annotated[
        str, positive_duration("spec.rollout.canary.maxDuration", "1h or 90m")
    ] = Field(
        default=_seconds(_CANARY.max_duration_s),
        description=(
            "Time after which a canary without a verdict is handled by onTimeout, such as "
            "1h or 90m. Time without requests on either side does not count."
        ),
        max_length=20,
    )
    on_timeout: Literal["Rollback", "Promote"] = Field(
        default=_CANARY.on_timeout,
        description="Action for a canary that has no verdict after maxDuration.",
    )
    control: bool = Field(
        default=_ROLLOUT.with_control,
        description=(
            "Whether to compare the canary with a control: new pods of the stable revision, "
            "as many as the canary's and with as much traffic. Otherwise it is compared "
            "with all pods of the stable revision."
        ),
    )
    sticky_by: Literal["None", "Conversation", "User"] = Field(
        default="None",
        description=(
            "Requests that stay on the same revision while weights do not change. None: no "
            "requests. Conversation: requests of the same conversation. User: requests with "
            "the same `user`."
        ),
    )
    metrics: Annotated[
        list[Metric],
        Obeys(
            Rule(
                "self.all(m, self.exists_one(n, n.name == m.name))",
                lambda metrics: len({metric.name for metric in metrics}) == len(metrics),
                "spec.rollout.canary.metrics must have names of their own",
            )
        ),
    ] = Field(
        default=[],
        description=(
            "Prometheus queries whose results must stay within bounds while the canary is judged."
        ),
        max_length=10,
    )
    tenant_header: Annotated[
        str,
        Obeys(matches(r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", "a header is named in lower case")),
        Obeys(
            Rule(
                f"!(self in {json.dumps(SECRET_HEADERS)})",
                lambda name: name not in SECRET_HEADERS,
                "spec.rollout.canary.tenantHeader must not be a header that holds a secret",
            )
        ),
    ] = Field(
        default="",
        description=(
            "Request header that names the tenant, such as x-tenant, for `penstock rollout "
            "status --by tenant`. Its values are stored with the evidence, so the header "
            "must not contain a secret. Default: none."
        ),
        max_length=63,
    )
    shadow: Shadow | None = Field(
        default=None,
        description="Shadowing before the canary gets traffic. Default: none.",
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

    auto_promote: bool = Field(
        default=_ROLLOUT.is_switched_automatically,
        description=(
            "Whether to switch the traffic as soon as all pods are ready. Otherwise it is "
            "switched by `penstock rollout promote`."
        ),
    )

    previous_kept: Annotated[str, _duration("spec.rollout.blueGreen.previousKept", "5m")] = Field(
        default=_seconds(_ROLLOUT.previous_kept_s),
        description=(
            "Time for which the old pods are kept after the switch, such as 5m. A rollback "
            "within that time needs no new pods."
        ),
        max_length=20,
    )


class Rolling(Model):
    """Settings of Rolling rollouts."""

    max_surge: int = Field(
        default=_ROLLOUT.max_surge,
        description="Maximum number of replicas above the desired number during the rollout.",
        ge=0,
        le=1000,
    )
    max_unavailable: int = Field(
        default=_ROLLOUT.max_unavailable,
        description=(
            "Number of replicas by which the ready ones may fall below the desired number during the "
            "rollout. Used only if new pods cannot be scheduled otherwise."
        ),
        ge=0,
        le=1000,
    )


# The API server checks the default of an object before it fills in the defaults of its fields, so
# what holds between fields is a rule of the whole spec, which has no default.
RULES = (
    Rule(
        "self.rollout.canary.minWeight <= self.rollout.canary.maxWeight",
        lambda spec: spec.rollout.canary.min_weight <= spec.rollout.canary.max_weight,
        "spec.rollout.canary.minWeight must not be greater than maxWeight",
    ),
    Rule(
        "self.rollout.rolling.maxSurge > 0 || self.rollout.rolling.maxUnavailable > 0",
        lambda spec: spec.rollout.rolling.max_surge > 0 or spec.rollout.rolling.max_unavailable > 0,
        "spec.rollout.rolling.maxSurge and maxUnavailable must not both be 0",
    ),
)


class Rollout(Model):
    """How a new revision replaces the old one."""

    strategy: Literal["Canary", "BlueGreen", "Rolling", "Recreate"] = Field(
        default=_ROLLOUT.strategy,
        description=(
            "Rolling replaces pods a few at a time. Canary compares the revisions on a part "
            "of the requests first. BlueGreen starts all new pods, then switches the "
            "traffic. Recreate stops the old pods before it starts new ones. The first "
            "revision of a service is started without a strategy."
        ),
    )
    canary: Canary = Field(default=Canary(), description="Settings of Canary rollouts.")
    blue_green: BlueGreen = Field(
        default=BlueGreen(), description="Settings of BlueGreen rollouts."
    )
    rolling: Rolling = Field(default=Rolling(), description="Settings of Rolling rollouts.")
    progress_deadline: Annotated[str, positive_duration("spec.rollout.progressDeadline", "10m")] = (
        Field(
            default=_seconds(_ROLLOUT.progress_deadline_s),
            description=(
                "Maximum time until the next pod of a new revision becomes ready, such as "
                "10m. After that the revision is rejected."
            ),
            max_length=20,
        )
    )
    revision_history_limit: int = Field(
        default=_ROLLOUT.history,
        description="Number of earlier revisions that are kept for `penstock rollout undo`.",
        ge=0,
        le=100,
    )
