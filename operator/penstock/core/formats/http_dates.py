"""Dates in HTTP headers (RFC 9110, 5.6.7)."""

from email.utils import parsedate_to_datetime


def seconds_until(date: str, unix_now_s: float, *, default_s: float) -> float:
    """Seconds from now until an HTTP date, negative if it is over; default_s if it is no date."""
    try:
        return parsedate_to_datetime(date).timestamp() - unix_now_s
    except (ValueError, TypeError, OverflowError):
        return default_s
