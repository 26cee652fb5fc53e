"""Runs a fetch for a command: lines of progress on stderr, and the result as one line of JSON."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock_engine.sources.credentials import apply_credentials
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.fetch import fetch_model
from penstock_engine.sources.limits import FetchLimits

# Exit codes of the command. A failure that may pass has that of sysexits.h for it (EX_TEMPFAIL).
FETCHED, FAILED, FAILED_FOR_NOW = 0, 1, 75


def run_fetch(
    uri: str,
    into: Path,
    cache: Path | None,
    limits: FetchLimits,
    credentials: Path | None = None,
) -> tuple[dict[str, Any], int]:
    """Fetch a model. Returns the report and the exit code.

    credentials: folder with a file for each setting; None: they are in the environment. Readers of other
    versions read the report: entries may only be added.
    """
    try:
        apply_credentials(credentials, _say)
        result = fetch_model(uri, into, cache, limits, _say)
    except FetchError as error:
        report = {
            "ok": False,
            "reason": error.reason,
            "message": error.message,
            "is_retryable": error.is_retryable,
        }
        return report, FAILED_FOR_NOW if error.is_retryable else FAILED
    return {"ok": True, **asdict(result), "path": str(into)}, FETCHED


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
