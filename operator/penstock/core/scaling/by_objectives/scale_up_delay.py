"""Scale-up delay: the minimum requirement sustained over a window."""

from dataclasses import dataclass

from penstock.core.scaling.rule import TrailEntry


@dataclass(frozen=True, slots=True)
class ScaleUpDelay:
    """A requirement above the current replicas.

    since_s: time at which it began; None: there is none. least: the minimum requirement since then.
    """

    since_s: float | None = None
    least: int = 0

    def delay(
        self, wanted: int, current: int, now_s: float, enough_s: float
    ) -> tuple["ScaleUpDelay", TrailEntry]:
        """The next state, and the replicas to request: the least wanted for enough_s, else `current`."""
        since_s, least = now_s, wanted
        if self.since_s is not None:
            since_s, least = self.since_s, min(wanted, self.least)
        lasted_s = now_s - since_s
        note = f"{least} for {lasted_s:.0f} s, of {enough_s:.0f} s"
        if lasted_s < enough_s:
            return ScaleUpDelay(since_s, least), TrailEntry("patience", current, note)
        return ScaleUpDelay(), TrailEntry("patience", least, note)
