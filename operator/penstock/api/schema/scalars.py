"""Types of single values in the API: durations, quantities, percentages and decimal numbers.

Each type brings its schema and its rules. Their messages begin with `must`, because an error of the
API server begins with the path of the field.
"""

import re
from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from penstock.api.schema.rules import Obeys, Rule, matches
from penstock.core.formats.quantity import (
    DURATION_PATTERN,
    QUANTITY_PATTERN,
    exact_quantity,
    is_quantity,
)

# Values with a fraction are text, as the API conventions of Kubernetes forbid floats in a spec.
DECIMAL_PATTERN = r"^[0-9]+([.][0-9]+)?$"
SIGNED_DECIMAL_PATTERN = r"^-?[0-9]+([.][0-9]+)?$"
PERCENT_PATTERN = r"^[0-9]{1,4}%$"
MAX_DECIMAL_LENGTH = 20
# "99999ms", four times.
MAX_DURATION_LENGTH = 28
MAX_QUANTITY_LENGTH = 32

_DURATION = matches(DURATION_PATTERN, "must be a duration such as 500ms, 30s or 1h30m")
_QUANTITY = Rule(
    "isQuantity(string(self))",
    lambda value: is_quantity(str(value)),
    "must be a quantity such as 2, 1.5, 500m or 4Gi",
)
_NOT_NEGATIVE = Rule(
    "!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('0')) >= 0",
    lambda value: exact_quantity(str(value)) >= 0,
    "must not be negative",
)
_COUNT_OR_PERCENT = Rule(
    f"type(self) == int ? self >= 0 && self <= 1000 : self.matches('{PERCENT_PATTERN}')",
    lambda value: (
        0 <= value <= 1000
        if isinstance(value, int)
        else bool(re.fullmatch(PERCENT_PATTERN, value, re.ASCII))
    ),
    "must be a number from 0 to 1000 or a percentage such as 25%",
)


# CEL of the rule that tells a type -> what the reference pages call the type.
NAMES = {
    _DURATION.cel: "duration",
    _QUANTITY.cel: "quantity",
    _COUNT_OR_PERCENT.cel: "number or percentage",
    matches(DECIMAL_PATTERN, "").cel: "decimal number in quotes",
    matches(SIGNED_DECIMAL_PATTERN, "").cel: "decimal number in quotes",
}
# CEL of the rules that every field of such a type has.
TYPE_RULES = {*NAMES, _NOT_NEGATIVE.cel}


class IntOrString:
    """Gives a field of type `int | str` the schema of Kubernetes' IntOrString."""

    def __init__(self, **constraints: Any) -> None:
        self._constraints = constraints

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            **self._constraints,
        }


def decimal(low: float, high: float, pattern: str = DECIMAL_PATTERN) -> Obeys:
    """Rules of a decimal number in a text, from low to high. The field also needs a max_length."""
    return Obeys(
        matches(pattern, "must be a decimal number in quotes, such as '0.99'"),
        Rule(
            f"!self.matches('{pattern}') || (double(self) >= {low!r} && double(self) <= {high!r})",
            lambda text: low <= float(text) <= high,
            f"must be from {low:.15g} to {high:.15g}",
        ),
    )


# A duration in the format of the Gateway API (GEP-2257), which is not the format of metav1.Duration.
Duration = Annotated[str, Field(max_length=MAX_DURATION_LENGTH), Obeys(_DURATION)]

PositiveDuration = Annotated[
    str,
    Field(max_length=MAX_DURATION_LENGTH),
    Obeys(
        _DURATION,
        Rule(
            "self.matches('[1-9]')",
            lambda text: bool(re.search("[1-9]", text)),
            "must not be zero",
        ),
    ),
]

# A resource quantity that is not negative, as text or as a whole number.
Quantity = Annotated[
    int | Annotated[str, Field(max_length=MAX_QUANTITY_LENGTH)],
    IntOrString(pattern=QUANTITY_PATTERN, maxLength=MAX_QUANTITY_LENGTH),
    Obeys(_QUANTITY, _NOT_NEGATIVE),
]

# A quantity of at least one byte.
Bytes = Annotated[
    Quantity,
    Obeys(
        Rule(
            "!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('1')) >= 0",
            lambda value: exact_quantity(str(value)) >= 1,
            "must be at least one byte; remove it for the default",
        )
    ),
]

# A number of pods, or a percentage of them, as in the strategy of a Deployment.
IntOrPercent = Annotated[
    int | Annotated[str, Field(max_length=5)], IntOrString(maxLength=5), Obeys(_COUNT_OR_PERCENT)
]

Percent = Annotated[int, Field(ge=1, le=100)]

# A value that is handed to the engine, in its spelling. The field also needs a max_length.
ENGINE_WORD = Obeys(
    matches(r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", "must be a word such as fp8 or hermes")
)
