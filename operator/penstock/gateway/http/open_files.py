"""Fits the gateway's connections into its process' limit of open files (RLIMIT_NOFILE)."""

import logging
from dataclasses import replace

from penstock.gateway.http.servers import MAX_MANAGEMENT_CONNECTIONS
from penstock.gateway.settings import GatewaySettings
from penstock_engine.http.open_files import allow_open_files

logger = logging.getLogger(__name__)

# Open files that are left for the API server, the log and libraries.
OTHER_FILES = 64


def fit_connections(settings: GatewaySettings) -> GatewaySettings:
    """Return the settings with as many client connections as the process may have files for."""
    reserved = settings.max_mirrored + MAX_MANAGEMENT_CONNECTIONS
    possible = connections_within_limit(settings.max_connections, reserved)
    return replace(settings, max_connections=possible)


def connections_within_limit(wanted: int, reserved: int) -> int:
    """Return how many client connections fit; each needs a second one to an engine.

    The soft limit is raised first, as far as the hard limit allows. wanted: the most to return.
    reserved: other connections that the process may have.
    """
    others = OTHER_FILES + reserved
    needed = others + 2 * wanted
    allowed = allow_open_files(needed)
    if allowed == needed:
        return wanted
    possible = max(1, (allowed - others) // 2)
    logger.warning(
        "connections are limited to %d instead of %d: the limit of open files (ulimit -n) is %d",
        possible, wanted, allowed,
    )  # fmt: skip
    return possible
