"""Reads the conditions in the status of a Kubernetes object."""

from typing import Any

Object = dict[str, Any]


def conditions_by_type(status: Object | None) -> dict[str, Object]:
    """The conditions of a status by type."""
    return {each.get("type", ""): each for each in (status or {}).get("conditions") or ()}


def find_condition(object_status: Object | None, type_: str, status: str = "") -> Object:
    """The condition of a type, or {} if there is none or its status differs.

    status: "True", "False", or empty for any.
    """
    stored = (object_status or {}).get("conditions") or ()
    found: Object = next((each for each in stored if each.get("type") == type_), {})
    return found if status in ("", found.get("status")) else {}
