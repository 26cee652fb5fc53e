"""Counts of the fetches of a service's models, or of its adapters, for its metrics."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.core.observed.fetches import FetchReport
from penstock.core.observed.pods import ObservedPod

FETCHED, OTHER = "Fetched", "Other"
# Reasons of failures are written by containers. Those that are no word, or beyond this number, are one.
REASON, MAX_REASONS = re.compile(r"[A-Za-z]{1,40}"), 50


PodReport = tuple[str, FetchReport]  # with the uid of the pod


@dataclass(frozen=True, slots=True)
class FetchTotals:
    """Fetches that ended since the counts began.

    by_reason: their number by reason; Fetched for those that succeeded. seen: the runs of present pods that
    are counted already.
    """

    by_reason: Mapping[str, int] = field(default_factory=dict)
    downloaded_bytes: int = 0
    seconds: float = 0.0
    num_cache_hits: int = 0
    seen: frozenset[tuple[str, str, str]] = frozenset()

    def updated(self, reports: Iterable[PodReport]) -> "FetchTotals":
        """Add the fetches that ended since the last update. reports: of all present pods."""
        runs = {(uid, each.container, each.ended_at): each for uid, each in reports}
        new = [report for run, report in runs.items() if run not in self.seen]
        by_reason = dict(self.by_reason)
        for report in new:
            reason = _reason(report, by_reason)
            by_reason[reason] = by_reason.get(reason, 0) + 1
        return FetchTotals(
            by_reason,
            self.downloaded_bytes + sum(report.downloaded_bytes for report in new),
            self.seconds + sum(report.seconds for report in new),
            self.num_cache_hits + sum(report.num_cache_hits for report in new),
            frozenset(runs),
        )


def reports_of(pods: Iterable[ObservedPod]) -> Iterator[PodReport]:
    """The reports of the containers that have fetched models for these pods."""
    for pod in pods:
        for report in pod.fetches.reports if pod.fetches else ():
            yield pod.uid, report


def _reason(report: FetchReport, known: Mapping[str, int]) -> str:
    if report.ok:
        return FETCHED
    is_new_word = REASON.fullmatch(report.reason) and len(known) < MAX_REASONS
    return report.reason if report.reason in known or is_new_word else OTHER
