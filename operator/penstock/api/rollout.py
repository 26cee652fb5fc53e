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
    """Shadow traffic for a new revision before it gets traffic. The revision is rejected for faults alone:
    crashes, outputs that are not numbers, errors and empty responses that its control does not have."""

    share: Annotated[float, _at_least("shadow.share", 0.001)] = Field(
        default=_SHADOW.share,
        description="The share of requests that is copied to it, and to its control.",
        ge=0.001,
        le=1.0,
    )
    duration: Annotated[str, positive_duration("spec.rollout.canary.shadow.duration", "5m")] = (
        Field(
            default=_seconds(_SHADOW.duration_s),
            description="For how long. Time without copies is added.",
            max_length=20,
        )
    )


class Canary(Model):
    """Statistical tests of a canary. They are anytime-valid: a verdict may be reached at any time."""

    alpha: Annotated[float, _at_least("alpha", 0.0001)] = Field(
        default=_CANARY.alpha,
        description=(
            "The chance that a revision which is no worse is rolled back all the same, over all "
            "tests and all looks together."
        ),
        ge=0.0001,
        le=0.2,
    )
    tolerance: Annotated[float, _at_least("tolerance", 0.01)] = Field(
        default=_CANARY.tolerance,
        description=(
            "How much slower TTFT or TPOT may get, as a fraction. A revision is promoted once it is "
            "shown to stay below."
        ),
        ge=0.01,
        le=1.0,
    )
    error_tolerance: Annotated[float, _at_least("errorTolerance", 0.001)] = Field(
        default=_CANARY.error_tolerance,
        description="How much larger the share of failed requests may get: 0.01 is a point.",
        ge=0.001,
        le=0.5,
    )
    violation_tolerance: Annotated[float, _at_least("violationTolerance", 0.01)] = Field(
        default=_CANARY.violation_tolerance,
        description="How much larger the share of requests that miss spec.objectives may get.",
        ge=0.01,
        le=0.5,
    )
    min_weight: Annotated[float, _at_least("minWeight", 0.01)] = Field(
        default=_CANARY.min_weight,
        description=(
            "The share of requests that the new revision gets at first, and its control as well."
        ),
        ge=0.01,
        le=0.5,
    )
    max_weight: Annotated[float, _at_least("maxWeight", 0.01)] = Field(
        default=_CANARY.max_weight,
        description="The share that it gets at most before it is promoted. Evidence moves it there.",
        ge=0.01,
        le=0.5,
    )
    max_duration: Annotated[
        str, positive_duration("spec.rollout.canary.maxDuration", "1h or 90m")
    ] = Field(
        default=_seconds(_CANARY.max_duration_s),
        description="How long it may stay undecided. Time without requests on both sides is added.",
        max_length=20,
    )
    on_timeout: Literal["Rollback", "Promote"] = Field(
        default=_CANARY.on_timeout, description="What happens to one that is undecided by then."
    )
    control: bool = Field(
        default=_ROLLOUT.with_control,
        description=(
            "Start pods of the stable revision with the canary and compare it with those: as new, "
            "as many, with as much traffic. Without it the canary is compared with all of stable."
        ),
    )
    sticky_by: Literal["None", "Conversation", "User"] = Field(
        default="None",
        description=(
            "What stays on a revision while weights stay: nothing, all requests of a conversation, "
            "or all requests with the same `user`."
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
        description="Numbers of your own that must stay within bounds while it is judged.",
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
            "The header that names a request's tenant, such as x-tenant, for `rollout status --by "
            "tenant`. Its values are kept with the evidence: name none that holds a secret."
        ),
        max_length=63,
    )
    shadow: Shadow | None = Field(
        default=None,
        description="Copies of requests come first, then traffic; without it traffic comes at once.",
    )
    evaluation: Evaluation | None = Field(
        default=None,
        description="A Job that tries the canary; it is not promoted before the Job has succeeded.",
    )


class BlueGreen(Model):
    """When it switches, and what happens after that."""

    auto_promote: bool = Field(
        default=_ROLLOUT.is_switched_automatically,
        description=(
            "Switch as soon as all pods are ready. Without it a person does: "
            "`kubectl penstock rollout promote`."
        ),
    )

    previous_kept: Annotated[str, _duration("spec.rollout.blueGreen.previousKept", "5m")] = Field(
        default=_seconds(_ROLLOUT.previous_kept_s),
        description="How long the old pods stay, so that a rollback takes a second.",
        max_length=20,
    )


class Rolling(Model):
    """How pods are replaced."""

    max_surge: int = Field(
        default=_ROLLOUT.max_surge,
        description="How many more replicas than wanted there may be meanwhile.",
        ge=0,
        le=1000,
    )
    max_unavailable: int = Field(
        default=_ROLLOUT.max_unavailable,
        description=(
            "How many fewer than wanted may be ready meanwhile. Used only where new pods find no "
            "room otherwise."
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
    """How a new revision takes over from the old."""

    strategy: Literal["Canary", "BlueGreen", "Rolling", "Recreate"] = Field(
        default=_ROLLOUT.strategy,
        description=(
            "Rolling replaces pods a few at a time. Canary lets a part of the requests judge it. "
            "BlueGreen starts all pods, then switches. Recreate stops the old pods first. The first "
            "revision of a service just starts."
        ),
    )
    canary: Canary = Field(default=Canary(), description="What a canary has to show.")
    blue_green: BlueGreen = Field(
        default=BlueGreen(), description="When it switches, and what then."
    )
    rolling: Rolling = Field(default=Rolling(), description="How pods are replaced.")
    progress_deadline: Annotated[str, positive_duration("spec.rollout.progressDeadline", "10m")] = (
        Field(
            default=_seconds(_ROLLOUT.progress_deadline_s),
            description=(
                "How long pods of a new revision may take until the next of them is ready. Later than "
                "that the revision is rejected."
            ),
            max_length=20,
        )
    )
    revision_history_limit: int = Field(
        default=_ROLLOUT.history,
        description="How many earlier revisions `penstock rollout undo` can go back to.",
        ge=0,
        le=100,
    )
