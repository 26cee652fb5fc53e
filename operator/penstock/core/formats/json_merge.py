"""JSON merge patches (RFC 7386), as the API server applies them."""

from typing import Any


def merged(stored: Any, patch: Any) -> Any:
    """The stored value with a merge patch applied: null removes a field, a list replaces a list."""
    if not isinstance(patch, dict):
        return patch
    made = dict(stored) if isinstance(stored, dict) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), value)
    return made
