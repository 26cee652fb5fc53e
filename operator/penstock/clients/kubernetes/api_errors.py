"""Errors of the API server, by status code and message."""

from penstock.core.formats.json_text import parse_json
from penstock.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    Rejected,
    Transient,
)

# Text of a status 500 by which the API server refuses an object with a field of a wrong type.
WRONG_TYPE = "failed to create typed patch object"


def status_field(text: str, name: str) -> str:
    """Return a field of the API server's error Status; empty if it is absent."""
    try:
        return str(parse_json(text)[name])
    except (ValueError, KeyError, TypeError):
        return ""


def api_error(code: int, message: str, retry_after: str | None, reason: str = "") -> KubeError:
    """The error for a status code. retry_after: value of the header of that name."""
    if code in (404, 410):
        return NotFound(message)
    if code == 409:
        return AlreadyExists(message) if reason == "AlreadyExists" else Conflict(message)
    if code == 403:
        return Forbidden(message)
    is_wrong_type = code == 500 and message.startswith(WRONG_TYPE)
    if code in (401, 408, 429) or (code >= 500 and not is_wrong_type):
        delay_s = float(retry_after) if retry_after and retry_after.isdecimal() else None
        return Transient(message, delay_s)
    return Rejected(message)
