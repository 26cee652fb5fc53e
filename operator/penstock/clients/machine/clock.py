"""The clocks: no other module reads the time."""

import time


def monotonic() -> float:
    """Seconds on a clock that never goes back."""
    return time.monotonic()


def unix_time() -> float:
    """Seconds since the epoch."""
    return time.time()


_START_S = time.time() - time.monotonic()


def steady() -> float:
    """Seconds since the epoch by the wall clock of the start of this process; never goes back."""
    return _START_S + time.monotonic()


def thread_cpu_time() -> float:
    """CPU seconds that this thread has used."""
    return time.thread_time()


def sleep(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)
