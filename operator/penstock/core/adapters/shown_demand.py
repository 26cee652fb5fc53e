"""The demand for an adapter as its status shows it, which changes at most once a minute."""

from dataclasses import dataclass, replace

from penstock.core.adapters.demand import AdapterCounts
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.spec.service import Object

# Time over which requests per second are averaged, and shortest time between two changes, in seconds.
WINDOW_S = 60.0
# Relative change below which the number stays: each change is a write to the API server.
MIN_CHANGE = 0.2
# The time of the last request is shown anew after this time, or together with another number.
LAST_USED_STEP_S = 600.0


@dataclass(frozen=True, slots=True)
class ShownDemand:
    """Demand in the status.

    requests_per_s: decimal number. last_used_s: Unix time of the last request, to within LAST_USED_STEP_S
    while there are any; None: none was seen. since_s, arrivals: start of the present window, and the counter
    then.
    """

    requests_per_s: str
    last_used_s: float | None
    since_s: float
    arrivals: int

    @property
    def is_zero(self) -> bool:
        return float(self.requests_per_s) == 0


def stored_demand(status: Object, counts: AdapterCounts, now_s: float) -> ShownDemand:
    """The demand that a status shows, with a window that begins now."""
    demand, used = status.get("demand") or {}, status.get("lastUsedTime")
    return ShownDemand(
        demand.get("requestsPerSecond", "0"),
        parse_timestamp(used) if used else None,
        now_s,
        counts.arrivals,
    )


def show_demand(before: ShownDemand, counts: AdapterCounts, now_s: float) -> ShownDemand:
    """Update the shown demand. now_s: Unix time. Counters that fell started again at 0."""
    elapsed_s = now_s - before.since_s
    if elapsed_s < WINDOW_S:
        return before
    gained = counts.arrivals - before.arrivals
    gained = gained if gained >= 0 else counts.arrivals
    shown = replace(before, since_s=now_s, arrivals=counts.arrivals)
    number = gained / elapsed_s
    if _is_news(float(before.requests_per_s), number):
        last_used_s = now_s if gained else before.last_used_s
        return replace(shown, requests_per_s=_as_text(number), last_used_s=last_used_s)
    if gained and now_s - (before.last_used_s or 0.0) >= LAST_USED_STEP_S:
        return replace(shown, last_used_s=now_s)
    return shown


def requests_per_s(status: Object) -> float:
    """The demand that a status shows, in requests per second; 0 if it shows none."""
    return float((status.get("demand") or {}).get("requestsPerSecond") or 0.0)


def _is_news(old: float, new: float) -> bool:
    if not old or not new:
        return old != new
    return abs(new - old) > MIN_CHANGE * old


def _as_text(number: float) -> str:
    """The number with few digits: one request a minute is 0.017."""
    if number == 0:
        return "0"
    digits = 0 if number >= 10 else 1 if number >= 1 else 3
    return f"{number:.{digits}f}"
