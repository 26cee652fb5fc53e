"""spec.objectives: how soon answers must come."""

from typing import Annotated

from pydantic import Field

from penstock.api.rules import Model, Obeys, Rule, positive_duration


class Objectives(Model):
    """Latency objectives. The number of replicas is sized to meet them."""

    ttft: Annotated[str, positive_duration("spec.objectives.ttft", "2s or 500ms")] = Field(
        description=(
            "Objective for the time to the first token (TTFT) of a request, as a duration "
            "such as 2s or 500ms."
        ),
        max_length=20,
    )
    tpot: Annotated[str, positive_duration("spec.objectives.tpot", "100ms")] = Field(
        description=(
            "Objective for the mean time per output token after the first (TPOT) of a "
            "request, as a duration such as 100ms."
        ),
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
        description=(
            "Fraction of requests that must meet both objectives. A higher fraction needs "
            "more replicas."
        ),
        ge=0.5,
        le=0.9999,
    )
