"""What stable did before the canary came: the last hour of it, for errors that are rare."""

from dataclasses import dataclass

from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import NO_HISTORY, History

LENGTH_S = 3600.0
# Counts are kept so often.
MARK_S = 60.0


@dataclass(frozen=True, slots=True)
class Past:
    """Of one revision. marks: what was counted, at times; the first is about an hour old at most."""

    revision: str
    marks: tuple[tuple[float, Counts], ...] = ()

    def after(self, now_s: float, total: Counts) -> "Past":
        """total: all that was ever counted. One that fell is counted anew, and so is the past."""
        kept = [mark for mark in self.marks if mark[0] >= now_s - LENGTH_S]
        if kept and _has_begun_anew(kept[-1][1], total):
            kept = []
        if len(kept) > 1 and kept[-1][0] - kept[-2][0] < MARK_S:
            kept.pop()
        return Past(self.revision, (*kept, (now_s, total)))

    def without_what_came_since(self, total: Counts) -> "Past":
        """As if nothing had been counted between the last mark and now."""
        if not self.marks or _has_begun_anew(self.marks[-1][1], total):
            return Past(self.revision)
        last = self.marks[-1][1]
        gap = Counts(total.requests - last.requests, total.events - last.events)
        return Past(self.revision, tuple((at_s, counts.add(gap)) for at_s, counts in self.marks))

    def history(self) -> History:
        if not self.marks:
            return NO_HISTORY
        first, last = self.marks[0][1], self.marks[-1][1]
        return History(last.requests - first.requests, last.events - first.events)


def _has_begun_anew(before: Counts, total: Counts) -> bool:
    return total.requests < before.requests or total.events < before.events
