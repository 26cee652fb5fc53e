"""The one place that reads a clock."""

import time
from datetime import UTC, datetime


def monotonic() -> float:
    """Seconds on a clock that never goes back."""
    return time.monotonic()


def wall() -> float:
    """Seconds since the epoch."""
    return time.time()


_START_S = time.time() - time.monotonic()


def steady() -> float:
    """Seconds since the epoch, as far as this process knew at its start: never goes back."""
    return _START_S + time.monotonic()


def timestamp(seconds: float) -> str:
    """A wall-clock reading as Kubernetes writes it, to the second, in UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> float:
    """Seconds since the epoch of a Kubernetes timestamp."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def sleep(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)
