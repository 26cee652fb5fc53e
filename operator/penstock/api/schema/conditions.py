"""Schema of the conditions in the status of a kind."""

from typing import Literal

from pydantic import Field

from penstock.api.schema.defaults import optional
from penstock.api.schema.rules import Model
from penstock.core.reconcile.condition_types import REASON_PATTERN

# Pattern of a condition type in metav1.Condition: a name, with the domain of its owner or without.
TYPE_PATTERN = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


class Condition(Model):
    """Condition of the service: metav1.Condition, so that others can write theirs too."""

    type: str = Field(
        description="Type of the condition, such as Ready.", pattern=TYPE_PATTERN, max_length=316
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition holds.")
    reason: str = Field(
        description="Reason for the status, as one word for programs; see docs/reference/conditions.md.",
        pattern=REASON_PATTERN,
        min_length=1,
        max_length=1024,
    )
    message: str = Field(description="Reason for the status, as a sentence.", max_length=32768)
    last_transition_time: str = Field(
        description="Time of the last change of the status.",
        json_schema_extra={"format": "date-time"},
    )
    observed_generation: int | None = optional(
        "Generation of the spec that the condition is about.", ge=0
    )
