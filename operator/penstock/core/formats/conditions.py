"""Reads the conditions in the status of a Kubernetes object."""

from typing import Any

Object = dict[str, Any]


def conditions_by_type(status: Object | None) -> dict[str, Object]:
    """The conditions of a status by type."""
    return {each.get("type", ""): each for each in (status or {}).get("conditions") or ()}


def condition(status: Object | None, kind: str, truth: str = "") -> Object:
    """The condition of a type; empty if there is none. truth: its status; empty: any."""
    held = (status or {}).get("conditions") or ()
    found: Object = next((each for each in held if each.get("type") == kind), {})
    return found if truth in ("", found.get("status")) else {}
