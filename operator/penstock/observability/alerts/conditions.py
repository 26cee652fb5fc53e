"""Conditions of alerts: quantities that are measured, compared with limits, and the PromQL of both.

An alert's expression has no result while all is well. Its quantities have one wherever the metrics that the
alert needs exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Comparison:
    """A quantity beyond its limit.

    quantity: PromQL. limit: a number, or the PromQL of a quantity. matching: PromQL's keywords that pair the
    series of both; empty: by all labels.
    """

    quantity: str
    operator: Literal["<", ">", ">="]
    limit: float | str
    matching: str = ""

    @property
    def expr(self) -> str:
        limit = self.limit if isinstance(self.limit, str) else f"{self.limit:.15g}"
        return " ".join(filter(None, (self.quantity, self.operator, self.matching, limit)))

    @property
    def quantities(self) -> tuple[str, ...]:
        return (self.quantity, self.limit) if isinstance(self.limit, str) else (self.quantity,)


@dataclass(frozen=True, slots=True)
class Present:
    """A quantity that exists, whatever its value. Put first, it gives the alert its value."""

    quantity: str

    @property
    def expr(self) -> str:
        return self.quantity

    @property
    def quantities(self) -> tuple[str, ...]:
        return (self.quantity,)


@dataclass(frozen=True, slots=True)
class Absent:
    """A quantity that no series has."""

    quantity: str

    @property
    def expr(self) -> str:
        return f"absent({self.quantity})"

    @property
    def quantities(self) -> tuple[str, ...]:
        return (self.quantity,)


@dataclass(frozen=True, slots=True)
class Combination:
    """Conditions of which all (`and`) or any (`or`) hold, or the first without the second (`unless`)."""

    operator: Literal["and", "or", "unless"]
    parts: Sequence["Condition"]

    @property
    def expr(self) -> str:
        return f" {self.operator} ".join(map(_as_operand, self.parts))

    @property
    def quantities(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for part in self.parts for each in part.quantities))


Condition = Comparison | Present | Absent | Combination


def all_of(*parts: Condition) -> Combination:
    return Combination("and", parts)


def any_of(*parts: Condition) -> Combination:
    return Combination("or", parts)


def _as_operand(part: Condition) -> str:
    return f"({part.expr})" if isinstance(part, Combination) else part.expr
