"""Fetches the headers of all sources of a preflight, and reports them for its verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock_engine.sources.credentials import apply_credentials
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.report import failure, say
from penstock_engine.sources.resolution import is_offline, parse_source

IN_ARCHIVE = "the model is in an archive: it is checked when it is fetched"
OFFLINE = (
    "HF_HUB_OFFLINE is set, so no source is asked: the model is checked when the cache gives it"
)


@dataclass(slots=True)
class SourcesReport:
    """The sources of a preflight, in the order of its flags.

    verdict: if it is there, the model in the folders need not or cannot be checked.
    """

    sources: list[dict[str, Any]] = field(default_factory=list)
    verdict: dict[str, Any] | None = None

    @property
    def entry(self) -> dict[str, Any]:
        """Entry of the verdict about the sources; empty if there are none, or one failed."""
        return {"sources": self.sources} if self.sources else {}


def report_sources(
    folders: Sequence[tuple[Path, str]], credentials: Path | None, limits: FetchLimits
) -> SourcesReport:
    """Fetch headers of sources into folders. folders: (folder, URI).

    Operators of other versions read the report: entries may only be added.
    """
    from penstock_engine.sources.headers.fetch_headers import fetch_headers  # as in run_fetch

    report, uri, in_archive = SourcesReport(), folders[0][1], False
    ignored: tuple[str, ...] = ()
    try:
        ignored = apply_credentials(credentials, say)
        if is_offline():
            for _, uri in folders:
                parse_source(uri)
            return SourcesReport(verdict={"ok": True, "reason": "Found", "message": OFFLINE})
        for folder, uri in folders:
            found = fetch_headers(uri, folder, limits)
            in_archive = in_archive or found.is_archive
            entry = {
                "uri": uri,
                "resolved_uri": found.resolved_uri,
                "total_bytes": found.total_bytes,
            }
            report.sources.append(entry | ({"is_archive": True} if found.is_archive else {}))
    except FetchError as error:
        return SourcesReport(verdict=failure(error, ignored) | {"remedies": {}, "uri": uri})
    if in_archive:
        report.verdict = {"ok": True, "reason": "Found", "message": IN_ARCHIVE}
    return report
