"""Schema of spec.tracing: OpenTelemetry traces of requests in engines."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.api.schema.defaults import optional
from penstock.api.schema.names import HTTP_URL
from penstock.api.schema.rules import Model, Rule
from penstock.api.schema.scalars import MAX_DECIMAL_LENGTH, decimal

Sampler = Literal[
    "always_on", "always_off", "traceidratio",
    "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
]  # fmt: skip


class Tracing(Model):
    """OpenTelemetry traces of requests in engines."""

    RULES = (
        Rule(
            "!has(self.samplerArg) || (has(self.sampler) && self.sampler.endsWith('traceidratio'))",
            lambda tracing: (
                tracing.sampler_arg is None
                or (tracing.sampler is not None and tracing.sampler.endswith("traceidratio"))
            ),
            "spec.tracing.samplerArg requires sampler traceidratio or parentbased_traceidratio",
        ),
    )

    exporter_endpoint: Annotated[str, HTTP_URL] = Field(
        description=(
            "Base URL of a collector that accepts OTLP over HTTP, such as "
            "http://collector.monitoring:4318. /v1/traces is appended to it."
        ),
        max_length=512,
    )
    sampler: Sampler | None = optional(
        "Which traces are exported, as in OTEL_TRACES_SAMPLER. Default: parentbased_always_on, which "
        "follows the gateway's decision."
    )
    sampler_arg: Annotated[str, decimal(0, 1)] | None = optional(
        "Fraction of traces that a ratio sampler exports, in quotes, such as '0.05'.",
        max_length=MAX_DECIMAL_LENGTH,
    )
