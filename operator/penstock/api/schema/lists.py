"""Lists in a schema: their types, by which the API server merges them, and lists of arguments."""

from typing import Any, Unpack

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from penstock.api.schema.defaults import Rules

# The whole list is replaced.
ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
# Each value is a separate entry.
SET: dict[str, Any] = {"x-kubernetes-list-type": "set"}


def listed(description: str, **rules: Unpack[Rules]) -> Any:
    """Field with a list that may be empty."""
    return Field(default=[], description=description, **rules)


def argument_list(description: str, *, max_length: int = 128) -> Any:
    """Field with a list of command-line arguments. max_length: maximum number of arguments."""
    items = {
        "type": "string",
        "description": "An argument, such as --verbose.",
        "maxLength": 4096,
    }
    return listed(description, max_length=max_length, json_schema_extra=ATOMIC | {"items": items})


def map_by(*keys: str) -> dict[str, Any]:
    """List type of objects whose keys are these fields. Each must be required or have a default."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def unique_by(*keys: str) -> AfterValidator:
    """The validation that the API server does for map_by(*keys), in Python."""

    def check(entries: list[Any]) -> list[Any]:
        values = {tuple(getattr(entry, key) for key in keys) for entry in entries}
        if len(values) < len(entries):
            what = {"key": " and ".join(keys)}
            raise PydanticCustomError("duplicate", "two entries have the same {key}", what)
        return entries

    return AfterValidator(check)


def _check_values(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        raise PydanticCustomError("duplicate", "two entries are the same")
    return values


# Annotates a list of texts with the validation that the API server does for SET.
UNIQUE = AfterValidator(_check_values)
