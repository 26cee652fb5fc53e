"""Baseline error counts: requests and errors of the stable revision over a sliding one-hour window."""

from dataclasses import dataclass

from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import NO_HISTORY, History

WINDOW_S = 3600.0
# Least distance between two stored samples; bounds them to about 60 per service.
SAMPLE_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class BaselineErrors:
    """Samples of one revision's cumulative counts, each with its time in seconds, oldest first.

    All samples but the newest are at least SAMPLE_INTERVAL_S apart and at most WINDOW_S old.
    """

    revision: str
    samples: tuple[tuple[float, Counts], ...] = ()

    def with_counts(self, now_s: float, total: Counts) -> "BaselineErrors":
        """Add a sample. total: cumulative counts; if they fell, the counter was reset and so is this."""
        kept = [sample for sample in self.samples if sample[0] >= now_s - WINDOW_S]
        if kept and _was_reset(kept[-1][1], total):
            kept = []
        if len(kept) > 1 and kept[-1][0] - kept[-2][0] < SAMPLE_INTERVAL_S:
            kept.pop()
        return BaselineErrors(self.revision, (*kept, (now_s, total)))

    def without_gap(self, total: Counts) -> "BaselineErrors":
        """Exclude everything counted since the last sample, such as a canary's requests."""
        if not self.samples or _was_reset(self.samples[-1][1], total):
            return BaselineErrors(self.revision)
        last = self.samples[-1][1]
        gap = Counts(total.requests - last.requests, total.events - last.events)
        shifted = tuple((at_s, counts.add(gap)) for at_s, counts in self.samples)
        return BaselineErrors(self.revision, shifted)

    def history(self) -> History:
        """Requests and errors within the window."""
        if not self.samples:
            return NO_HISTORY
        first, last = self.samples[0][1], self.samples[-1][1]
        return History(last.requests - first.requests, last.events - first.events)


def _was_reset(before: Counts, total: Counts) -> bool:
    return total.requests < before.requests or total.events < before.events
