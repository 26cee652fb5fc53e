"""Runs a fetch for a command: lines of progress on stderr, and a report to be written as JSON."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock_engine.sources.credentials import apply_credentials
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.progress import Progress

# Reasons for which a misspelled name among the credentials may be the cause.
REFUSED_READS = ("Forbidden", "GatedModel", "RepositoryNotFound", "Unauthorized")
MAX_IGNORED = 3  # names in a message: one is a spelling mistake, many are another program's Secret


def run_fetch(
    uri: str,
    into: Path,
    cache: Path | None,
    limits: FetchLimits,
    credentials: Path | None = None,
    address: tuple[str, int] | None = None,
    node_cache: Path | None = None,
) -> dict[str, Any]:
    """Fetch a model. Returns the report.

    credentials: folder with a file for each setting; None: they are in the environment. address: host
    and port that serve metrics meanwhile; None: nothing does. node_cache: folder of the cache of the node,
    whose server is asked first; None: none is. Readers of other versions read the report:
    entries may only be added.
    """
    from penstock_engine.sources.fetch import fetch_model  # imports what other commands do not need
    from penstock_engine.sources.node_cache.client import fetch_with_node_cache

    progress = Progress(say)
    ignored: tuple[str, ...] = ()
    try:
        ignored = apply_credentials(credentials, say)
        with _serving(progress, address):
            if node_cache is None:
                result = fetch_model(uri, into, cache, limits, progress)
            else:
                result = fetch_with_node_cache(uri, into, node_cache, limits, progress)
    except FetchError as error:
        return failure(error, ignored)
    return {"ok": True, **asdict(result), "path": str(into)}


def _serving(progress: Progress, address: tuple[str, int] | None) -> AbstractContextManager[None]:
    if address is None:
        return nullcontext()
    from penstock_engine.sources.metrics_server import serving_metrics  # imports prometheus_client

    return serving_metrics(progress, *address, say)


def failure(error: FetchError, ignored: Sequence[str] = ()) -> dict[str, Any]:
    """The report of a source that failed. ignored: names of credentials that no source has."""
    message = error.message
    if ignored and error.reason in REFUSED_READS:
        message += f"; ignored of the credentials: {', '.join(ignored[:MAX_IGNORED])}"
    return {
        "ok": False,
        "reason": error.reason,
        "message": message,
        "is_retryable": error.is_retryable,
    }


def say(line: str) -> None:
    """Write a line for people, beside the report."""
    print(line, file=sys.stderr, flush=True)
