"""Delays of scaling decisions: how long a need must last before replicas are added or removed."""

from dataclasses import dataclass

from penstock.core.scaling.rule import TrailEntry

# Seconds without a decision after which the scale-down delay starts again.
MAX_GAP_S = 15.0


@dataclass(frozen=True, slots=True)
class ScaleDownDelay:
    """Scale-down delay: the time for which fewer replicas have been enough, without a break.

    low_since_s: None while they are not enough. seen_s: time of the last decision.
    """

    low_since_s: float | None = None
    seen_s: float | None = None

    def updated(self, now_s: float, *, is_low: bool) -> "ScaleDownDelay":
        """The delay after a decision at now_s. is_low: whether fewer replicas are enough now."""
        if not is_low:
            return ScaleDownDelay(None, now_s)
        is_gap = self.seen_s is None or now_s - self.seen_s > MAX_GAP_S
        since_s = now_s if self.low_since_s is None or is_gap else self.low_since_s
        return ScaleDownDelay(since_s, now_s)

    @property
    def lasted_s(self) -> float:
        """Time for which fewer replicas had been enough at the last decision; 0 if they were not."""
        if self.low_since_s is None or self.seen_s is None:
            return 0.0
        return self.seen_s - self.low_since_s

    def is_over(self, delay_s: float) -> bool:
        """Whether fewer replicas have been enough for delay_s."""
        return self.low_since_s is not None and self.lasted_s >= delay_s

    def entry(self, current: int, fewer: int, delay_s: float) -> TrailEntry:
        """The step of the trail: `fewer` replicas once that has been enough for delay_s, else `current`."""
        if self.is_over(delay_s):
            note = f"fewer than {current} were enough for {self.lasted_s:.0f} s"
            return TrailEntry("down", fewer, note)
        note = f"{current} are held: fewer are enough for {self.lasted_s:.0f} of {delay_s:g} s"
        return TrailEntry("delay", current, note)


@dataclass(frozen=True, slots=True)
class ScaleUpDelay:
    """Scale-up delay: the time for which more replicas have been needed.

    since_s: None while no more are needed. least: the least that was needed since then.
    """

    since_s: float | None = None
    least: int = 0

    def delay(
        self, wanted: int, current: int, now_s: float, delay_s: float
    ) -> tuple["ScaleUpDelay", TrailEntry]:
        """The next state and the step of the trail: the least wanted over delay_s, or `current` until then.

        wanted: replicas needed now, more than `current`. A scale-up starts the delay again.
        """
        since_s, least = now_s, wanted
        if self.since_s is not None and self.least > current:
            since_s, least = self.since_s, min(wanted, self.least)
        lasted_s = now_s - since_s
        if lasted_s >= delay_s:
            note = f"at least {least} were needed for {lasted_s:.0f} s"
            return ScaleUpDelay(), TrailEntry("up", least, note)
        note = (
            f"{current} are held: at least {least} are needed for {lasted_s:.0f} of {delay_s:.0f} s"
        )
        return ScaleUpDelay(since_s, least), TrailEntry("delay", current, note)


@dataclass(frozen=True, slots=True)
class ScaleDownWindow:
    """Sliding maximum of the recent needs, as in the stabilization window of an HPA.

    since_s: start of the delay. needs: (time, need in replicas or parts of one) of those that can still be
    the largest: each is smaller than the one before.
    """

    since_s: float | None = None
    needs: tuple[tuple[float, float], ...] = ()

    @property
    def largest(self) -> float:
        """The largest need of the window; 0 if there is none."""
        return self.needs[0][1] if self.needs else 0.0

    def updated(self, now_s: float, need: float, delay_s: float) -> "ScaleDownWindow":
        """Add the need at now_s, and drop needs that are older than delay_s."""
        if self.needs and now_s - self.needs[-1][0] > MAX_GAP_S:
            return ScaleDownWindow(now_s, ((now_s, need),))
        kept = [(at_s, n) for at_s, n in self.needs if at_s > now_s - delay_s and n > need]
        return ScaleDownWindow(
            now_s if self.since_s is None else self.since_s, (*kept, (now_s, need))
        )

    def entry(self, current: int, least: int, now_s: float, delay_s: float) -> TrailEntry:
        """The step of the trail: `least` replicas once delay_s has passed, `current` until then.

        least: replicas that hold the largest need of the window.
        """
        lasted_s = 0.0 if self.since_s is None else now_s - self.since_s
        if least >= current:
            return TrailEntry("steady", current, f"needed within {delay_s:.0f} s: {least}")
        if lasted_s < delay_s:
            note = f"{current} are held: fewer are enough for {lasted_s:.0f} of {delay_s:.0f} s"
            return TrailEntry("delay", current, note)
        have = "has" if least == 1 else "have"
        return TrailEntry("down", least, f"{least} {have} been enough for {delay_s:.0f} s")
