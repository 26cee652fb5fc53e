"""Schema of a canary's gates besides its judge: metrics and evaluation."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.api.inferenceservice.resources import ResourceRequirements
from penstock.api.schema.defaults import core_default, optional
from penstock.api.schema.lists import argument_list, listed, map_by, unique_by
from penstock.api.schema.names import HTTP_URL, PART_NAME
from penstock.api.schema.rules import Model, Obeys, Rule, matches
from penstock.api.schema.scalars import (
    MAX_DECIMAL_LENGTH,
    SIGNED_DECIMAL_PATTERN,
    Duration,
    PositiveDuration,
    decimal,
)
from penstock.core.formats.quantity import DURATION_PATTERN, parse_duration_s
from penstock.core.spec.metric_gate import MetricGate
from penstock.core.spec.rollout import EVALUATION_CPU, EVALUATION_MEMORY, EvaluationSpec

_VARIABLE = Obeys(
    matches(r"^[A-Za-z_][A-Za-z0-9_]*$", "must be the name of an environment variable")
)
_SECRET = Obeys(
    matches(
        r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "must be the name of a Secret of the same namespace"
    )
)
_SECRET_KEY = Obeys(matches(r"^[-._a-zA-Z0-9]+$", "must be a key of a Secret"))
MIN_INTERVAL = "10s"
_INTERVAL = Obeys(
    Rule(
        f"!self.matches('{DURATION_PATTERN}') || duration(self) >= duration('{MIN_INTERVAL}')",
        lambda text: parse_duration_s(text) >= parse_duration_s(MIN_INTERVAL),
        f"must be at least {MIN_INTERVAL}",
    )
)
# Far beyond any measurement; a double is exact to one up to there.
_BOUND = decimal(-1e15, 1e15, SIGNED_DECIMAL_PATTERN)


def _is_ordered(low: str | None, high: str | None) -> bool:
    return low is None or high is None or float(low) <= float(high)


class Metric(Model):
    """Prometheus query whose result must stay within bounds."""

    RULES = (
        Rule(
            "has(self.minimum) || has(self.maximum)",
            lambda metric: metric.minimum is not None or metric.maximum is not None,
            "a metric needs a minimum or a maximum",
        ),
        Rule(
            "!has(self.minimum) || !has(self.maximum) || double(self.minimum) <= double(self.maximum)",
            lambda metric: _is_ordered(metric.minimum, metric.maximum),
            "minimum must not be greater than maximum",
        ),
    )

    name: Annotated[str, PART_NAME] = Field(
        description="Name of the metric in the status, such as quality.",
        min_length=1,
        max_length=63,
    )
    server: Annotated[str, HTTP_URL] = Field(
        description=(
            "URL of a Prometheus server, such as http://prometheus.monitoring:9090. Its "
            "host must be allowed with the operator's --metrics-host."
        ),
        max_length=512,
    )
    query: str = Field(
        description=(
            "PromQL query with one number as result, such as avg(quality{revision='$revision'}). "
            "$namespace, $service, $revision (the canary's) and $stable (the stable revision) are replaced."
        ),
        min_length=1,
        max_length=2048,
    )
    minimum: Annotated[str, _BOUND] | None = optional(
        "Smallest result that passes, as a decimal number in quotes. Default: no lower bound.",
        max_length=MAX_DECIMAL_LENGTH,
    )
    maximum: Annotated[str, _BOUND] | None = optional(
        "Largest result that passes, as a decimal number in quotes. Default: no upper bound.",
        max_length=MAX_DECIMAL_LENGTH,
    )
    interval: Annotated[Duration, _INTERVAL] | None = optional(
        f"Time between measurements, such as 1m; at least {MIN_INTERVAL}.",
        json_schema_extra=core_default(MetricGate, "interval_s"),
    )
    initial_delay: Duration | None = optional(
        "Time between the start of the canary's judgement and the first measurement, such as 2m.",
        json_schema_extra=core_default(MetricGate, "initial_delay_s"),
    )
    failure_limit: int | None = optional(
        "Number of measurements that may be out of bounds. One more rolls the canary back.",
        ge=0,
        le=1000,
        json_schema_extra=core_default(MetricGate, "failure_limit"),
    )
    no_data: Literal["Hold", "Pass", "Fail"] | None = optional(
        "Handling of a query without a result. Hold: no measurement; the canary is not "
        "promoted meanwhile. Pass: a measurement within bounds. Fail: a measurement out "
        "of bounds.",
        json_schema_extra=core_default(MetricGate, "no_data"),
    )


class SecretKeyRef(Model):
    """Key of a Secret in the same namespace."""

    name: Annotated[str, _SECRET] = Field(
        description="Name of the Secret, such as keys.", min_length=1, max_length=253
    )
    key: Annotated[str, _SECRET_KEY] = Field(
        description="Key in the Secret, such as token.", min_length=1, max_length=253
    )


class ValueSource(Model):
    """Source of the value of an environment variable."""

    secret_key_ref: SecretKeyRef = Field(description="Key of a Secret that contains the value.")


class Variable(Model):
    """Environment variable of the evaluation."""

    RULES = (
        Rule(
            "!has(self.valueFrom) || !has(self.value) || self.value == ''",
            lambda variable: variable.value_from is None or not variable.value,
            "value and valueFrom must not both be set",
        ),
    )

    name: Annotated[str, _VARIABLE] = Field(
        description="Name of the environment variable, such as THRESHOLD.",
        min_length=1,
        max_length=128,
    )
    value: str | None = optional(
        "Value of the environment variable. Default: the empty string.", max_length=4096
    )
    value_from: ValueSource | None = optional("Source of the value. Refused with a value.")


class Evaluation(Model):
    """Job that tests the canary. The canary is rolled back if its container exits with a code
    other than 0."""

    image: str = Field(
        description="Container image of the Job, such as registry.example/evaluation:1.",
        min_length=1,
        max_length=512,
    )
    command: list[Annotated[str, Field(max_length=4096)]] = argument_list(
        "Command of the container. Default: the image's entry point.", max_length=64
    )
    args: list[Annotated[str, Field(max_length=4096)]] = argument_list(
        "Arguments of the command, such as --limit=100.", max_length=64
    )
    env: Annotated[list[Variable], unique_by("name")] = listed(
        "Environment variables in addition to PENSTOCK_CANARY_URL, PENSTOCK_MODEL, "
        "PENSTOCK_NAMESPACE, PENSTOCK_SERVICE, PENSTOCK_REVISION and "
        "PENSTOCK_STABLE_REVISION.",
        max_length=32,
        json_schema_extra=map_by("name"),
    )
    timeout: PositiveDuration | None = optional(
        "Maximum duration of the Job, such as 10m. A Job that takes longer has failed.",
        json_schema_extra=core_default(EvaluationSpec, "timeout_s"),
    )
    resources: ResourceRequirements = Field(
        default=ResourceRequirements(),
        description=(
            f"Resources of the Job's container. Without a limit and a request it requests "
            f"{EVALUATION_CPU} of CPU, and {EVALUATION_MEMORY} of memory as request and limit."
        ),
    )
