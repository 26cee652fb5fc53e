"""Series of the leader's metrics while another pod becomes the leader, in promtool's notation."""

from dataclasses import dataclass
from datetime import timedelta

from tests.observability.alert_scenarios import SERVICE, level, minutes, misses, rate

# The first leader's series end at this step, and the next one's begin some steps later.
CHANGE, LEADERLESS = 140, 2
STEPS = 180


def leaders_gauge(
    metric: str, value: float = 1, after: float | None = None, begin: int = 0
) -> dict[str, str]:
    """Series of a gauge: of the first leader from the step `begin`, then of the next leader.

    metric: with labels, the last brace missing. after: value at the next leader; None: the same.
    """
    missing = f"_x{begin} " if begin else ""
    later = value if after is None else after
    return {
        f'{metric},pod="a"}}': f"{missing}{level((value, CHANGE - begin))} stale",
        f'{metric},pod="b"}}': f"_x{CHANGE + LEADERLESS} {level((later, STEPS))}",
    }


def gauge(name: str) -> str:
    return f"penstock_operator_{name}{{{SERVICE}"


READY = leaders_gauge(gauge("ready_replicas"))


def stalled(status: str) -> str:
    return gauge("condition") + f',type="Stalled",status="{status}"'


@dataclass(frozen=True)
class LeaderChange:
    """An incident that goes on over a change of the leader.

    firing: the alert's labels. series: of the incident. fires_at: before the change.
    """

    firing: str
    series: dict[str, str]
    fires_at: timedelta = timedelta(minutes=60)


# An incident for each kind of metric that alerts read from the leader.
FIRING = {
    "a gauge with a second condition": LeaderChange(
        "PenstockScalerBlind", READY | leaders_gauge(gauge("scaling_blind"))
    ),
    "a gauge with a long hold time": LeaderChange(
        "PenstockScalerAtMaximum", leaders_gauge(gauge("scaling_at_maximum"))
    ),
    "a time": LeaderChange("PenstockSlowStart", leaders_gauge(gauge("longest_unready_seconds"), 1000)),
    "a deadline": LeaderChange(
        "PenstockRolloutStuck",
        leaders_gauge(gauge("rollout_deadline_timestamp_seconds"), 60)
        | leaders_gauge(gauge("rollout_phase") + ',phase="Judging"'),
        minutes(70),
    ),
    "a condition": LeaderChange("PenstockServiceStalled", leaders_gauge(stalled("True"))),
    "a recorded gauge": LeaderChange(
        'PenstockTTFTBurnRate",window="1h',
        {
            name: values
            for name, values in misses("ttft", rate((60, 400)), rate((30, 400))).items()
            if "target" not in name
        }
        | leaders_gauge(gauge("objective_target_ratio"), 0.99),
    ),
    "a counter of every replica": LeaderChange(
        "PenstockReconcileErrors",
        {
            'penstock_operator_reconciles_total{outcome="error",pod="a"}':
                rate((1, CHANGE - 1)) + " stale",
            'penstock_operator_reconciles_total{outcome="error",pod="b"}':
                rate((0, CHANGE + LEADERLESS), (1, STEPS)),
        },
    ),
}  # fmt: skip

# Values of the first leader, for less than the hold time of the alert, that the next one does not have: no
# alert may fire, although the hold time ends soon after the change.
SHORT, LONG = CHANGE - 3, CHANGE - 12
ENDED = {
    "blind": READY | leaders_gauge(gauge("scaling_blind"), 1, after=0, begin=SHORT),
    "at the maximum": leaders_gauge(gauge("scaling_at_maximum"), 1, after=0, begin=LONG),
    "a rollout": leaders_gauge(
        gauge("rollout_deadline_timestamp_seconds"), 60, after=9e9, begin=SHORT
    ),
    "a condition": {
        stalled("True") + ',pod="a"}': f"_x{SHORT} {level((1, CHANGE - SHORT))} stale",
        stalled("False") + ',pod="b"}': f"_x{CHANGE + LEADERLESS} {level((1, STEPS))}",
    },
}


def changing_leaders(metric: str, count: int) -> dict[str, str]:
    """A gauge of leaders that last two minutes each, with a minute without one between them."""
    return {
        f'{metric},pod="p{each}"}}': (f"_x{3 * each} " if each else "") + "1x1 stale"
        for each in range(count)
    }
