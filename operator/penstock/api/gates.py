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
    """Prometheus query whose result must stay within bounds."""

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
        description="Name of the metric in the status.", min_length=1, max_length=63
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
            "URL of a Prometheus server, such as http://prometheus.monitoring:9090. Its "
            "host must be allowed with the operator's --metrics-host."
        ),
        max_length=512,
    )
    query: str = Field(
        description=(
            "PromQL query with one number as result. $namespace, $service, $revision (the "
            "canary's) and $stable (the stable revision) are replaced."
        ),
        min_length=1,
        max_length=2048,
    )
    minimum: float | None = Field(
        default=None,
        description="Smallest result that passes. Default: no lower bound.",
        ge=-1e15,
        le=1e15,
    )
    maximum: float | None = Field(
        default=None,
        description="Largest result that passes. Default: no upper bound.",
        ge=-1e15,
        le=1e15,
    )
    interval: Annotated[str, _DURATION] = Field(
        default="1m",
        description="Time between measurements, such as 1m; at least 10s.",
        max_length=20,
    )
    initial_delay: Annotated[str, _DURATION] = Field(
        default="0s",
        description=(
            "Time between the start of the canary's judgement and the first measurement, "
            "such as 2m."
        ),
        max_length=20,
    )
    failure_limit: int = Field(
        default=0,
        description=(
            "Number of measurements that may be out of bounds. One more rolls the canary back."
        ),
        ge=0,
        le=1000,
    )
    no_data: Literal["Hold", "Pass", "Fail"] = Field(
        default="Hold",
        description=(
            "Handling of a query without a result. Hold: no measurement; the canary is not "
            "promoted meanwhile. Pass: a measurement within bounds. Fail: a measurement out "
            "of bounds."
        ),
    )


class SecretKey(Model):
    """Key of a Secret in the same namespace."""

    name: Annotated[str, _NAME] = Field(
        description="Name of the Secret.", min_length=1, max_length=253
    )
    key: str = Field(description="Key in the Secret.", min_length=1, max_length=253)


class Variable(Model):
    """Environment variable of the evaluation."""

    RULES = (
        Rule(
            "has(self.value) != has(self.secret)",
            lambda variable: (variable.value is None) != (variable.secret is None),
            "a variable has either a value or a secret",
        ),
    )

    name: Annotated[str, _VARIABLE] = Field(
        description="Name of the environment variable.", min_length=1, max_length=128
    )
    value: str | None = Field(
        default=None,
        description=(
            "Value of the environment variable. Exactly one of value and secret must be set."
        ),
        max_length=4096,
    )
    secret: SecretKey | None = Field(
        default=None, description="Secret key that contains the value."
    )


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
    """Job that tests the canary. The canary is rolled back if its container exits with a code
    other than 0."""

    image: str = Field(description="Container image of the Job.", min_length=1, max_length=512)
    command: list[Annotated[str, Field(max_length=4096)]] = _words(
        "Command of the container. Default: the image's entry point."
    )
    args: list[Annotated[str, Field(max_length=4096)]] = _words("Arguments of the command.")
    env: list[Variable] = Field(
        default=[],
        description=(
            "Environment variables in addition to PENSTOCK_CANARY_URL, PENSTOCK_MODEL, "
            "PENSTOCK_NAMESPACE, PENSTOCK_SERVICE, PENSTOCK_REVISION and "
            "PENSTOCK_STABLE_REVISION."
        ),
        max_length=32,
    )
    timeout: Annotated[str, positive_duration("spec.rollout.canary.evaluation.timeout", "10m")] = (
        Field(
            default="10m",
            description=(
                "Maximum duration of the Job, such as 10m. A Job that takes longer has failed."
            ),
            max_length=20,
        )
    )
    cpu: Annotated[str, _QUANTITY] = Field(
        default="100m", description="CPU cores that the Job requests.", max_length=20
    )
    memory: Annotated[str, _QUANTITY] = Field(
        default="256Mi", description="Memory of the Job, as request and limit.", max_length=20
    )
