"""spec.objectives: how soon answers must come."""

from typing import Annotated

from pydantic import Field

from penstock.api.rules import Model, Obeys, Rule, positive_duration


class Objectives(Model):
    """Latency objectives. With them the number of replicas is sized to meet these times."""

    ttft: Annotated[str, positive_duration("spec.objectives.ttft", "2s or 500ms")] = Field(
        description="Time to the first token (TTFT) that requests must meet, such as 2s.",
        max_length=20,
    )
    tpot: Annotated[str, positive_duration("spec.objectives.tpot", "100ms")] = Field(
        description="Mean time per further token (TPOT) that requests must meet, such as 100ms.",
        max_length=20,
    )
    attainment: Annotated[
        float,
        Obeys(
            Rule(
                "self >= 0.5",
                lambda part: part >= 0.5,
                "spec.objectives.attainment must be at least 0.5, such as 0.99",
            )
        ),
    ] = Field(
        default=0.99,
        description="Fraction of requests that must meet both times. A higher one needs more replicas.",
        ge=0.5,
        le=0.9999,
    )
