"""List types of a schema, by which the API server merges lists, for `json_schema_extra`."""

from typing import Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

# The whole list is replaced.
ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
# Each value is a separate entry.
SET: dict[str, Any] = {"x-kubernetes-list-type": "set"}


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
