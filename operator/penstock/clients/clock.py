"""The one place that reads a clock."""

import time


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


def sleep(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)
