"""The parameters `expires_after` of files and `output_expires_after` of batches."""

from collections.abc import Mapping
from typing import Any

from penstock.batch.api.errors import ApiError

# As OpenAI's.
MIN_S, MAX_S = 3600, 30 * 24 * 3600


def lifetime_s(value: Any, default_s: int, param: str) -> int:
    """Seconds for which a file is kept. value: an object with anchor and seconds; None: the default.

    Raises ApiError.
    """
    if value is None:
        return default_s
    if not isinstance(value, Mapping) or value.get("anchor") != "created_at":
        raise ApiError(400, f"{param}.anchor must be created_at", param=f"{param}.anchor")
    seconds = value.get("seconds")
    if not isinstance(seconds, int) or not MIN_S <= seconds <= MAX_S:
        message = f"{param}.seconds must be a number from {MIN_S} to {MAX_S}"
        raise ApiError(400, message, param=f"{param}.seconds")
    return min(seconds, default_s)
