"""Optional fields, and defaults that the operator applies, so that the API server does not store them.

A stored default stays in all objects as it was when they were written. A default of the operator can
become a better one, or follow the model and the hardware.
"""

from dataclasses import fields
from typing import Any, TypedDict, Unpack

from pydantic import Field

# Marks a field's default in the pydantic schema; crdgen turns it into a sentence of the description.
OPERATOR_DEFAULT = "x-operator-default"


class Rules(TypedDict, total=False):
    """Arguments of pydantic's Field with which a field is named or checked."""

    alias: str
    ge: float
    le: float
    min_length: int
    max_length: int
    json_schema_extra: dict[str, Any]


def optional(description: str, **rules: Unpack[Rules]) -> Any:
    """Field that may be absent."""
    return Field(default=None, description=description, **rules)


def operator_default(value: int | str) -> dict[str, Any]:
    """The `json_schema_extra` of a field that has this default in the operator."""
    return {OPERATOR_DEFAULT: value}


def default_of(record: type, attribute: str) -> Any:
    """The default of a dataclass field in core."""
    return next(field.default for field in fields(record) if field.name == attribute)


def core_default(record: type, attribute: str) -> dict[str, Any]:
    """The `json_schema_extra` of a field with a default in core. Times are shown in seconds."""
    value = default_of(record, attribute)
    return operator_default(f"{value:.0f}s" if attribute.endswith("_s") else value)


def core_percentage(record: type, attribute: str) -> dict[str, Any]:
    """The `json_schema_extra` of a percentage whose default in core is a fraction."""
    return operator_default(round(100 * default_of(record, attribute)))


def without_none(**values: Any) -> dict[str, Any]:
    """The values that are not None, as keyword arguments. Core has defaults for the others."""
    return {name: value for name, value in values.items() if value is not None}
