"""Alerts on the rate at which requests use up the error budget of an objective.

An alert fires while a long and a short window both burn the budget faster than a factor: the long one so that
a short disturbance does not fire it, the short one so that it clears soon after the end. The windows and
factors are those of "The Site Reliability Workbook", chapter 5, table 5-8, for a budget of 30 days.
"""

from dataclasses import dataclass

from penstock.observability.alerts.conditions import Combination, Comparison, all_of
from penstock.observability.alerts.rules import Alert, Group, Record, Severity, latest
from penstock.observability.metrics.gateway import OBJECTIVE_MISSES, OBJECTIVE_REQUESTS
from penstock.observability.metrics.operator import OBJECTIVE_TARGET

# Requests that miss the objective within the long window before an alert fires: of a service with few
# requests, one slow request is no incident.
MIN_MISSES = 10
# Upper bound of the fraction of misses that an alert waits for. With an attainment of 0.9 one request in ten
# may miss, and no fraction is 14.4 times as many.
MAX_LIMIT = 0.9


@dataclass(frozen=True, slots=True)
class Window:
    """A pair of windows, with the alert on both.

    factor: burn rate that both windows must exceed. At a burn rate of 1 the budget lasts exactly 30 days.
    hold_s: time for which they must, in seconds.
    """

    long: str
    short: str
    factor: float
    severity: Severity
    hold_s: int


WINDOWS = (
    Window("1h", "5m", 14.4, "critical", 120),
    Window("6h", "30m", 6.0, "critical", 900),
    Window("1d", "2h", 3.0, "warning", 3600),
    Window("3d", "6h", 1.0, "warning", 10800),
)
BUDGET = "penstock:objective_error_budget:ratio"
NAMES = {"ttft": "PenstockTTFTBurnRate", "tpot": "PenstockTPOTBurnRate"}
TIMES = {"ttft": "time to the first token", "tpot": "time per output token"}


def miss_ratio(window: str) -> str:
    """Name of the recorded fraction of requests that missed their objective, by service and objective."""
    return f"penstock:objective_misses:ratio_rate{window}"


def _lengths() -> tuple[str, ...]:
    """The lengths of all windows, each once."""
    return tuple(dict.fromkeys(each for window in WINDOWS for each in (window.short, window.long)))


def _recorded_misses(length: str) -> Record:
    """The recording rule for the fraction of misses in a window of this length."""
    misses, requests = (
        f"sum by (service, objective) (rate({name}[{length}]))"
        for name in (OBJECTIVE_MISSES.name, OBJECTIVE_REQUESTS.name)
    )
    return Record(miss_ratio(length), f"{misses} / ({requests} > 0)")


def _burns_too_fast(objective: str, window: Window) -> Combination:
    """Requests miss the objective too often in both windows."""
    limit = f"clamp_max({window.factor:g} * {BUDGET}, {MAX_LIMIT:g})"
    too_fast = (
        Comparison(
            f'{miss_ratio(length)}{{objective="{objective}"}}',
            ">",
            limit,
            "on (service) group_left ()",
        )
        for length in (window.long, window.short)
    )
    misses = (
        f"sum by (service, objective) "
        f'(increase({OBJECTIVE_MISSES.name}{{objective="{objective}"}}[{window.long}]))'
    )
    return all_of(*too_fast, Comparison(misses, ">=", MIN_MISSES))


def _alert(objective: str, window: Window) -> Alert:
    time = TIMES[objective]
    return Alert(
        name=NAMES[objective],
        severity=window.severity,
        condition=_burns_too_fast(objective, window),
        hold_s=window.hold_s,
        summary=f"{{{{ $labels.service }}}} misses its objective for the {time}.",
        description=(
            f"{{{{ $value | humanizePercentage }}}} of the requests of the last {window.long} missed "
            f"the objective for the {time}, and those of the last {window.short} still do. The limit "
            f"is a burn rate of {window.factor:g}, at which the error budget of 30 days lasts for "
            f"{30 / window.factor:.3g} days, but at most {MAX_LIMIT:.0%} of the requests."
        ),
        labels={"window": window.long},
    )


GROUP = Group(
    "penstock-objectives",
    (
        Record(BUDGET, f"1 - {latest(OBJECTIVE_TARGET.name)}"),
        *map(_recorded_misses, _lengths()),
        *(_alert(objective, window) for objective in NAMES for window in WINDOWS),
    ),
)
