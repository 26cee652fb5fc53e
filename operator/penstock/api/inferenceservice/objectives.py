"""Schema of spec.objectives, the latency objectives of a service."""

from typing import Annotated

from penstock.api.schema.defaults import default_of, operator_default, optional
from penstock.api.schema.rules import Model, Rule
from penstock.api.schema.scalars import MAX_DECIMAL_LENGTH, PositiveDuration, decimal
from penstock.core.spec import objectives as core


class Objectives(Model):
    """Latency objectives. With them the number of replicas is sized to meet these times."""

    RULES = (
        Rule(
            "has(self.ttft) || has(self.tpot)",
            lambda objectives: objectives.ttft is not None or objectives.tpot is not None,
            "spec.objectives needs ttft or tpot; set one of them, such as ttft: 2s",
        ),
    )

    ttft: PositiveDuration | None = optional(
        "Objective for the time to the first token (TTFT) of a request, as a duration such as "
        "2s or 500ms. Without it replicas are planned for waits of up to "
        f"{core.MAX_WAIT_S:.0f}s."
    )
    tpot: PositiveDuration | None = optional(
        "Objective for the mean time per output token after the first (TPOT) of a request, as a "
        "duration such as 100ms."
    )
    attainment: Annotated[str, decimal(0.5, 0.9999)] | None = optional(
        "Fraction of requests that must meet the objectives, as a decimal number in quotes from "
        "'0.5' to '0.9999'. A higher fraction needs more replicas.",
        max_length=MAX_DECIMAL_LENGTH,
        json_schema_extra=operator_default(str(default_of(core.Objectives, "attainment"))),
    )
