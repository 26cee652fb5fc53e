"""spec.objectives: how soon answers must come."""

from typing import Annotated

from pydantic import Field

from penstock.api.rules import Model, Obeys, Rule, positive_duration


class Objectives(Model):
    """How soon answers must come. With it the number of engines is sized for these times."""

    ttft: Annotated[str, positive_duration("spec.objectives.ttft", "2s or 500ms")] = Field(
        description="How long a request may take to its first token, such as 2s.", max_length=20
    )
    tpot: Annotated[str, positive_duration("spec.objectives.tpot", "100ms")] = Field(
        description="How long each further token may take on average, such as 100ms.",
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
        description="The share of requests that must meet both times. More asks for more replicas.",
        ge=0.5,
        le=0.9999,
    )
