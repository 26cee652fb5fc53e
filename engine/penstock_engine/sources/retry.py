"""Decides whether and when a failed request is tried again."""

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits


def retry_delay_s(
    error: FetchError, num_attempts: int, rest_s: float, jitter: float, limits: FetchLimits
) -> float | None:
    """Seconds to wait before the next attempt; None: give up.

    num_attempts: so far, without progress between them. rest_s: until the fetch's deadline. jitter: a random
    number from 0 to 1, so that replicas that failed together do not come back together. A server's own
    Retry-After is obeyed in full, or the fetch gives up if its deadline comes first.
    """
    if not error.is_retryable or num_attempts >= limits.max_attempts:
        return None
    delay_s = min(limits.first_delay_s * 2 ** (num_attempts - 1), limits.max_delay_s)
    delay_s *= 0.5 + jitter / 2
    if error.retry_after_s is not None:
        delay_s = max(delay_s, error.retry_after_s)
    return delay_s if delay_s < rest_s else None
