"""For how long more must have been needed before it is asked for."""

from dataclasses import dataclass

from penstock.core.scaling.rule import TrailEntry


@dataclass(frozen=True, slots=True)
class Patience:
    """since_s: since when more have been needed than there are; None: enough are there. least: of what
    was needed since then."""

    since_s: float | None = None
    least: int = 0

    def after(
        self, wanted: int, current: int, now_s: float, enough_s: float
    ) -> tuple["Patience", TrailEntry]:
        """The least that was wanted for enough_s; until then what there is."""
        since_s, least = now_s, wanted
        if self.since_s is not None:
            since_s, least = self.since_s, min(wanted, self.least)
        lasted_s = now_s - since_s
        note = f"{least} for {lasted_s:.0f} s, of {enough_s:.0f} s"
        if lasted_s < enough_s:
            return Patience(since_s, least), TrailEntry("patience", current, note)
        return Patience(), TrailEntry("patience", least, note)
