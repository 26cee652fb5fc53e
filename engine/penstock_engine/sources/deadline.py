"""Deadline of a fetch, and the cancellation of its threads after one has failed."""

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.retry import retry_delay_s

Result = TypeVar("Result")

# Longest time after its deadline in which a fetch ends by itself, in seconds: the time limit of a read.
MAX_GRACE_S = 30.0


class Cancelled(Exception):
    """A thread of the fetch has to end, as another one has failed."""


def deadline_exceeded(deadline_s: float) -> FetchError:
    """The error of a fetch that takes too long."""
    return FetchError(
        "DeadlineExceeded",
        f"the fetch took longer than {deadline_s:.0f} s: raise --deadline-seconds, or use a source that is "
        "nearer",
        is_retryable=True,
    )


def hang_time_s(deadline_s: float) -> float:
    """Seconds after its start at which a fetch hangs: it waits within a library, beyond its deadline."""
    return deadline_s + min(deadline_s, MAX_GRACE_S)


class Deadline:
    """The deadline of a fetch, and the signal that ends all of its threads."""

    def __init__(self, limits: FetchLimits) -> None:
        self.limits = limits
        self._end_s = time.monotonic() + limits.deadline_s
        self._cancelled = threading.Event()

    @property
    def rest_s(self) -> float:
        return self._end_s - time.monotonic()

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        """Raise FetchError (DeadlineExceeded) or Cancelled if the fetch has to end."""
        if self._cancelled.is_set():
            raise Cancelled
        if self.rest_s <= 0:
            raise deadline_exceeded(self.limits.deadline_s)

    def sleep(self, seconds: float) -> None:
        """Wait, at most until the fetch has to end. Raises like `check`."""
        self._cancelled.wait(max(0.0, min(seconds, self.rest_s)))
        self.check()

    def wait_after(self, error: FetchError, num_attempts: int) -> None:
        """Wait before the next attempt, or raise the error if there is none. Raises like `check`.

        num_attempts: so far.
        """
        jitter = random.random()  # noqa: S311 - spreads retries, guards nothing
        delay_s = retry_delay_s(error, num_attempts, self.rest_s, jitter, self.limits)
        if delay_s is None:
            raise error
        self.sleep(delay_s)

    def retrying(self, attempt: Callable[[], Result]) -> Result:
        """The result of a call that is repeated after errors that may pass. Raises like it, and `check`."""
        num_attempts = 0
        while True:
            self.check()
            try:
                return attempt()
            except FetchError as error:
                num_attempts += 1
                self.wait_after(error, num_attempts)
