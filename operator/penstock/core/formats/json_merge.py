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


def difference(stored: Any, wanted: Any) -> Any:
    """The merge patch that makes a stored object the wanted one; an empty object if they are the same."""
    if not isinstance(stored, dict) or not isinstance(wanted, dict):
        return wanted
    patch: dict[str, Any] = {name: None for name in stored if name not in wanted}
    for name, value in wanted.items():
        if name not in stored:
            patch[name] = value
        elif stored[name] != value:
            patch[name] = difference(stored[name], value)
    return patch


def if_unchanged(stored: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The merge patch, which fails once the object is another one, or has changed since it was stored."""
    precondition = {name: stored["metadata"][name] for name in ("uid", "resourceVersion")}
    return merged(patch, {"metadata": precondition})  # type: ignore[no-any-return]
