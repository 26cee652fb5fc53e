"""Values of JSON that a container wrote, which may be anybody's. Anything unexpected raises ValueError."""

from typing import Any

# Integers up to it are exact as floats, and sums of them stay finite.
MAX_NUMBER = 1 << 53


def as_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def as_number(value: Any) -> int | float:
    """A number that is not negative, of a size that occurs."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MAX_NUMBER:  # also for NaN
        raise ValueError("not a number that occurs")
    return value  # type: ignore[no-any-return]
