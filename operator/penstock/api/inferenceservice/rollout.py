"""Schema of spec.rollout: the strategy of a rollout and its settings."""

import re
from typing import Annotated, Literal

from pydantic import Field

from penstock.api.inferenceservice.canary import Canary
from penstock.api.schema.defaults import core_default, default_of, optional
from penstock.api.schema.rules import Model, Obeys, Rule
from penstock.api.schema.scalars import Duration, IntOrPercent, PositiveDuration
from penstock.core.spec.rollout import RolloutSpec

_ZERO = "^0+%?$"


class BlueGreen(Model):
    """Settings of BlueGreen rollouts."""

    promotion: Literal["Automatic", "Manual"] | None = optional(
        "When the traffic is switched. Automatic: as soon as all pods are ready. Manual: by "
        "`penstock rollout promote`.",
        json_schema_extra=core_default(RolloutSpec, "promotion"),
    )
    scale_down_delay: Duration | None = optional(
        "Time for which the old pods are kept after the switch, such as 5m. A rollback "
        "within that time needs no new pods.",
        json_schema_extra=core_default(RolloutSpec, "scale_down_delay_s"),
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

    max_surge: IntOrPercent | None = optional(
        "Maximum number of replicas above the desired number during the rollout, or a percentage of "
        "that number, rounded up.",
        json_schema_extra=core_default(RolloutSpec, "max_surge"),
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
    ) = optional(
        "Number of replicas by which the ready ones may fall below the desired number during the "
        "rollout, or a percentage of that number, rounded down. Used only if new pods cannot be "
        "scheduled otherwise.",
        json_schema_extra=core_default(RolloutSpec, "max_unavailable"),
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
    canary: Canary | None = optional("Settings of Canary rollouts. Refused with another strategy.")
    blue_green: BlueGreen | None = optional(
        "Settings of BlueGreen rollouts. Refused with another strategy."
    )
    rolling: Rolling | None = optional(
        "Settings of Rolling rollouts. Refused with another strategy."
    )
    at_zero: Literal["Try", "Accept"] | None = optional(
        "What a new revision of a service at zero replicas needs. Try: one engine of each revision is "
        "started, and the strategy decides. Accept: no engine is started. The revision is accepted when "
        "its preflight has passed, whatever the strategy, and the next request starts it. Requires "
        "scaling.minReplicas 0.",
        json_schema_extra=core_default(RolloutSpec, "at_zero"),
    )
    progress_deadline: PositiveDuration | None = optional(
        "Maximum time until the next pod of a new revision becomes ready, such as "
        "10m. After that the revision is rejected; a first revision, and one of "
        "Recreate, stalls the service until its pods come up.",
        json_schema_extra=core_default(RolloutSpec, "progress_deadline_s"),
    )
    revision_history_limit: int | None = optional(
        "Number of earlier revisions that are kept for `penstock rollout undo`.",
        ge=0,
        le=100,
        json_schema_extra=core_default(RolloutSpec, "history"),
    )
