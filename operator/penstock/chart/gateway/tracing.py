"""Values of the gateway's OpenTelemetry traces."""

from typing import Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from penstock.api.inferenceservice.tracing import Sampler
from penstock.chart.component.values import ValuesModel

_URL = r"https?://([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[^?#@\s]*)?"
_RATIO = "traceidratio"

# Environment variables of the gateway, set from endpoint, sampler and samplerArg.
OTEL_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG")

_ARGUMENT_RULE: JsonDict = {
    "if": {"properties": {"sampler": {"pattern": f"{_RATIO}$"}}},
    "then": {"properties": {"samplerArg": {"minLength": 1}}},
    "else": {"properties": {"samplerArg": {"maxLength": 0}}},
}


class Tracing(ValuesModel):
    """OpenTelemetry traces of the gateway. Engines get theirs from their services."""

    model_config = ConfigDict(json_schema_extra=_ARGUMENT_RULE)

    endpoint: str = Field(default="", pattern=f"^({_URL})?$")
    """URL at which a collector accepts OTLP over HTTP (not gRPC), such as
    http://collector.observability:4318. Empty: no traces."""
    sampler: Sampler = "parentbased_always_on"
    """Which requests are recorded. `parentbased` samplers follow the client's decision if it sent one."""
    sampler_arg: str = Field(default="", pattern=r"^(0|1|0?\.[0-9]+)?$")
    """Fraction of requests that a `traceidratio` sampler records, such as '0.01'. Set it with these samplers
    only."""

    @model_validator(mode="after")
    def _check_argument(self) -> Self:
        if self.sampler.endswith(_RATIO) != bool(self.sampler_arg):
            raise ValueError("samplerArg is for traceidratio samplers, which need one")
        return self
