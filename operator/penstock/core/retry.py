"""Retry policy: which failed attempts are tried again on another engine, and how often.

Nothing of a failed attempt has reached the client, and a generation has no effect but its answer, so that
any of them could be repeated. What limits retries is that the request itself may be the cause:

    connect      no connection could be opened      until the request's patience ends: no engine had work
    reset        broke off before its first byte    up to max_attempts
    unavailable  502, 503: draining, loading, full  up to max_attempts
    error        500, other 5xx; a stream that      once, on an engine that has not failed lately; a
                 begins with an error event         request that breaks engines reaches no third one

501, 504 and 505 speak of the request (not supported, its deadline passed): they are passed on, and
neither clear an engine's failures nor add to them.
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


def failure_of(status: int) -> Failure | None:
    """The failure that an HTTP status of an engine stands for; None of an answer to be passed on."""
    if status < 500 or status in ABOUT_THE_REQUEST:
        return None
    return Failure.UNAVAILABLE if status in (502, 503) else Failure.ERROR


def may_retry(failures: Sequence[Failure], max_attempts: int) -> bool:
    """failures: of the request's attempts so far."""
    if failures.count(Failure.ERROR) > MAX_ERROR_RETRIES:
        return False
    return len(failures) - failures.count(Failure.CONNECT) < max_attempts
