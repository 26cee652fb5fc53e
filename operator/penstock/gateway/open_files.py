"""Fits the gateway's connections into the open files that its process may have."""

import logging
import resource

logger = logging.getLogger(__name__)

# For everything but connections of clients and to engines: copies of requests, the API server, libraries.
OTHER_FILES = 128


def connections_within_limit(wanted: int) -> int:
    """Bound client connections by the limit on open files; each needs a second one to an engine.

    Raises the soft limit first, as far as the hard limit allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OTHER_FILES + 2 * wanted
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    possible = max(1, (soft - OTHER_FILES) // 2)
    logger.warning(
        "connections are limited to %d, not %d: the process may have %d open files (ulimit -n)",
        possible, wanted, soft,
    )  # fmt: skip
    return possible
