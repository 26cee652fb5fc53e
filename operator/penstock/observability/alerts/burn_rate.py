"""Alerts on the rate at which requests use up the error budget of an objective.

An alert fires while a long and a short window both burn the budget faster than a factor: the long one so that
a short disturbance does not fire it, the short one so that it clears soon after the end. The windows and
factors are those of "The Site Reliability Workbook", chapter 5, table 5-8, for a budget of 30 days.
"""

from dataclasses import dataclass

from penstock.observability.alerts.rules import Alert, Group, Record, Severity
from penstock.observability.metrics.gateway import OBJECTIVE_MISSES, OBJECTIVE_REQUESTS
from penstock.observability.metrics.operator import OBJECTIVE_TARGET

# Requests that miss the objective within the long window before an alert fires: of a service with few
# requests, one slow request is no incident.
MIN_MISSES = 10
# Fraction of missed requests that always counts as too fast. An attainment of 0.9 allows one request in
# ten to miss, so no fraction is 14.4 times as many.
MOST_MISSES = 0.9


@dataclass(frozen=True, slots=True)
class Window:
    """A pair of windows. factor: of the rate that uses the budget up in exactly 30 days."""

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


def _spans() -> tuple[str, ...]:
    return tuple(dict.fromkeys(span for window in WINDOWS for span in (window.short, window.long)))


def _recorded(span: str) -> Record:
    misses, requests = (
        f"sum by (service, objective) (rate({name}[{span}]))"
        for name in (OBJECTIVE_MISSES.name, OBJECTIVE_REQUESTS.name)
    )
    return Record(miss_ratio(span), f"{misses} / ({requests} > 0)")


def _burns(objective: str, window: Window) -> str:
    def too_fast(span: str) -> str:
        ratio = f'{miss_ratio(span)}{{objective="{objective}"}}'
        limit = f"clamp_max({window.factor:g} * {BUDGET}, {MOST_MISSES:g})"
        return f"{ratio} > on (service) group_left () {limit}"

    misses = (
        f"sum by (service, objective) "
        f'(increase({OBJECTIVE_MISSES.name}{{objective="{objective}"}}[{window.long}])) >= {MIN_MISSES}'
    )
    return f"({too_fast(window.long)}) and ({too_fast(window.short)}) and ({misses})"


def _alert(objective: str, window: Window) -> Alert:
    time = TIMES[objective]
    return Alert(
        name=NAMES[objective],
        severity=window.severity,
        expr=_burns(objective, window),
        hold_s=window.hold_s,
        summary=f"{{{{ $labels.service }}}} misses its objective for the {time}.",
        description=(
            f"{{{{ $value | humanizePercentage }}}} of the requests of the last {window.long} missed "
            f"the objective for the {time}, and those of the last {window.short} still do. At this rate "
            f"the error budget of 30 days lasts for less than {30 / window.factor:.3g} days."
        ),
        runbook=NAMES[objective],
        labels={"window": window.long},
    )


GROUP = Group(
    "penstock-objectives",
    (
        Record(BUDGET, f"1 - max by (service) ({OBJECTIVE_TARGET.name})"),
        *map(_recorded, _spans()),
        *(_alert(objective, window) for objective in NAMES for window in WINDOWS),
    ),
)
