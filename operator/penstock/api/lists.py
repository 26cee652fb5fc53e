"""How the API server merges lists: the list types of a schema, for `json_schema_extra`."""

from typing import Any

# The whole list is replaced.
ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
# Each value is an entry of its own.
SET: dict[str, Any] = {"x-kubernetes-list-type": "set"}


def map_by(*keys: str) -> dict[str, Any]:
    """Objects that are told apart by these fields, all of which must be required or have a default."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
