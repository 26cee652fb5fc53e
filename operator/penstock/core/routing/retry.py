"""Retry policy: which failed attempts are retried on another engine, and how often.

Any attempt could be repeated: nothing of it has reached the client, and generation has no side
effects. Retries are limited because the request itself may be the cause:

    connect      no connection could be opened      until the wait limit: no engine had any work
    reset        broke off before its first byte    up to max_attempts
    unavailable  502, 503: draining, loading, full  up to max_attempts
    no_copy      404 of an adapter that the engine  up to max_attempts, also on the same engine
                 had a moment before
    error        500, other 5xx; a stream that      once, on an engine without recent failures: a
                 begins with an error event         request that breaks engines reaches at most two

4xx, 501, 504 and 505 are about the request (invalid, not supported, deadline passed). They are passed
on, and neither reset an engine's failures nor add to them.
"""

from collections.abc import Sequence
from enum import StrEnum

MAX_ERROR_RETRIES = 1
ABOUT_THE_REQUEST = frozenset({501, 504, 505})


class Failure(StrEnum):
    """Why an attempt failed before anything of it reached the client."""

    CONNECT = "connect"
    RESET = "reset"
    UNAVAILABLE = "unavailable"
    ERROR = "error"
    NO_COPY = "no_copy"


def failure_of(status: int) -> Failure | None:
    """The failure that an engine's HTTP status stands for; None for an answer to pass on."""
    if status < 500 or status in ABOUT_THE_REQUEST:
        return None
    return Failure.UNAVAILABLE if status in (502, 503) else Failure.ERROR


def may_retry(failures: Sequence[Failure], max_attempts: int) -> bool:
    """Whether to try another engine. failures: of the request's attempts so far."""
    if failures.count(Failure.ERROR) > MAX_ERROR_RETRIES:
        return False
    return len(failures) - failures.count(Failure.CONNECT) < max_attempts
