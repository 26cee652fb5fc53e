"""spec.rollout.canary.metrics and evaluation: what a canary has to pass besides its judge."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.api.rules import Model, Obeys, Rule, matches, positive_duration
from penstock.core.formats.quantity import DURATION_PATTERN, QUANTITY_PATTERN

_NAME = Obeys(
    matches(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "the name must have lower-case letters, digits and '-', and begin and end with a letter or "
        "digit",
    )
)
_VARIABLE = Obeys(
    matches(r"^[A-Za-z_][A-Za-z0-9_]*$", "the name must be one of an environment variable")
)
_DURATION = Obeys(matches(DURATION_PATTERN, "it must be a duration such as 30s or 5m"))
_QUANTITY = Obeys(matches(QUANTITY_PATTERN, "it must be a quantity such as 256Mi"))


class Metric(Model):
    """A number of your own that must stay within bounds."""

    RULES = (
        Rule(
            "has(self.minimum) || has(self.maximum)",
            lambda metric: metric.minimum is not None or metric.maximum is not None,
            "a metric needs a minimum or a maximum",
        ),
        Rule(
            "!has(self.minimum) || !has(self.maximum) || self.minimum <= self.maximum",
            lambda metric: (
                metric.minimum is None or metric.maximum is None or metric.minimum <= metric.maximum
            ),
            "minimum must not be greater than maximum",
        ),
    )

    name: Annotated[str, _NAME] = Field(
        description="What it is called in the status.", min_length=1, max_length=63
    )
    server: Annotated[
        str,
        Obeys(
            matches(
                r"^https?://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[-A-Za-z0-9._~/]*)?$",
                "server must be http://HOST[:PORT][/PATH] or https://…, without a user or a query",
            )
        ),
    ] = Field(
        description=(
            "The URL of a Prometheus, such as http://prometheus.monitoring:9090. The operator must be "
            "started with its host as --metrics-host."
        ),
        max_length=512,
    )
    query: str = Field(
        description=(
            "PromQL that gives one number. $namespace, $service, $revision (of the canary) and "
            "$stable (the other revision) are put in."
        ),
        min_length=1,
        max_length=2048,
    )
    minimum: float | None = Field(
        default=None, description="The least that it may be.", ge=-1e15, le=1e15
    )
    maximum: float | None = Field(
        default=None, description="The most that it may be.", ge=-1e15, le=1e15
    )
    interval: Annotated[str, _DURATION] = Field(
        default="1m",
        description="How often it is measured: not more often than every 10s.",
        max_length=20,
    )
    initial_delay: Annotated[str, _DURATION] = Field(
        default="0s",
        description="How long the canary has had traffic before it is measured first.",
        max_length=20,
    )
    failure_limit: int = Field(
        default=0,
        description="So many measurements may be out of bounds; one more rolls the canary back.",
        ge=0,
        le=1000,
    )
    no_data: Literal["Hold", "Pass", "Fail"] = Field(
        default="Hold",
        description=(
            "What it means when the query matches nothing. Hold: the canary is neither promoted nor "
            "rolled back for it. Pass, Fail: it counts as a measurement."
        ),
    )


class SecretKey(Model):
    """A value in a Secret of the same namespace."""

    name: Annotated[str, _NAME] = Field(description="The Secret.", min_length=1, max_length=253)
    key: str = Field(description="The key in it.", min_length=1, max_length=253)


class Variable(Model):
    """An environment variable."""

    RULES = (
        Rule(
            "has(self.value) != has(self.secret)",
            lambda variable: (variable.value is None) != (variable.secret is None),
            "a variable has either a value or a secret",
        ),
    )

    name: Annotated[str, _VARIABLE] = Field(description="Its name.", min_length=1, max_length=128)
    value: str | None = Field(default=None, description="Its value.", max_length=4096)
    secret: SecretKey | None = Field(default=None, description="Where its value is.")


def _words(description: str) -> list[str]:
    made: list[str] = Field(
        default=[],
        description=description,
        max_length=64,
        json_schema_extra={
            "items": {"type": "string", "description": "A word.", "maxLength": 4096}
        },
    )
    return made


class Evaluation(Model):
    """A Job that tries the canary. Its exit decides: other than 0 rolls back."""

    image: str = Field(description="The image to run.", min_length=1, max_length=512)
    command: list[Annotated[str, Field(max_length=4096)]] = _words(
        "The command, instead of the image's own."
    )
    args: list[Annotated[str, Field(max_length=4096)]] = _words("Its arguments.")
    env: list[Variable] = Field(
        default=[],
        description=(
            "Variables besides PENSTOCK_CANARY_URL, PENSTOCK_MODEL, PENSTOCK_NAMESPACE, "
            "PENSTOCK_SERVICE, PENSTOCK_REVISION and PENSTOCK_STABLE_REVISION."
        ),
        max_length=32,
    )
    timeout: Annotated[str, positive_duration("spec.rollout.canary.evaluation.timeout", "10m")] = (
        Field(
            default="10m",
            description="How long it may take. One that takes longer has failed.",
            max_length=20,
        )
    )
    cpu: Annotated[str, _QUANTITY] = Field(
        default="100m", description="CPU cores that it asks for.", max_length=20
    )
    memory: Annotated[str, _QUANTITY] = Field(
        default="256Mi", description="Memory, as request and limit.", max_length=20
    )
