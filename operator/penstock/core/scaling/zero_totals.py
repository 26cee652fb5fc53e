"""Savings of scale to zero, and its cost in time to first token."""

from collections.abc import Iterator
from dataclasses import dataclass

MINUTE_S, HOUR_S, DAY_H = 60.0, 3600.0, 24.0


@dataclass(frozen=True, slots=True)
class ZeroTotals:
    """Totals of a service since its decisions have been watched.

    watched_s: time between decisions. zero_s: the part of it at zero. wake_ups: first replicas that were
    started. waited_s: sum of the start-up times that were expected at these.
    """

    watched_s: float = 0.0
    zero_s: float = 0.0
    wake_ups: int = 0
    waited_s: float = 0.0

    def with_time(self, passed_s: float, *, is_zero: bool) -> "ZeroTotals":
        """The totals after a time at zero, or with replicas."""
        zero_s = self.zero_s + (passed_s if is_zero else 0.0)
        return ZeroTotals(self.watched_s + passed_s, zero_s, self.wake_ups, self.waited_s)

    def woken(self, startup_s: float) -> "ZeroTotals":
        """The totals after a wake-up. startup_s: expected start-up time."""
        return ZeroTotals(self.watched_s, self.zero_s, self.wake_ups + 1, self.waited_s + startup_s)

    @property
    def saved_hours_per_day(self) -> float:
        """Replica hours per day without the last replica. watched_s must not be 0."""
        return DAY_H * self.zero_s / self.watched_s

    @property
    def wake_ups_per_day(self) -> float:
        return DAY_H * HOUR_S * self.wake_ups / self.watched_s


NO_TOTALS = ZeroTotals()


def describe(totals: ZeroTotals, price_per_hour: float | None) -> Iterator[str]:
    """Sentences on savings and cost; none before two decisions.

    price_per_hour: of the replica that would have stayed; None: unknown.
    """
    if not totals.watched_s:
        return
    if totals.watched_s < HOUR_S:
        yield (
            f"In the last {totals.watched_s / MINUTE_S:.0f} min, the service was at zero for "
            f"{totals.zero_s / MINUTE_S:.0f} min; what a day at this rate saves is told after an hour."
        )
        return
    hours = totals.saved_hours_per_day
    price = "" if price_per_hour is None else f", at a price of {hours * price_per_hour:,.2f}"
    yield (
        f"Scale to zero saves {hours:.1f} replica hours a day{price}: of the last "
        f"{totals.watched_s / HOUR_S:.1f} h, the service was at zero for {totals.zero_s / HOUR_S:.1f} h."
    )
    if not totals.wake_ups:
        yield "It has cost nothing, as no request has woken the service."
        return
    yield (
        f"It costs {totals.wake_ups_per_day:.1f} wake-ups a day: the first tokens of the {totals.wake_ups} "
        f"so far came {totals.waited_s:,.0f} s later, {totals.waited_s / totals.wake_ups:.0f} s each."
    )
