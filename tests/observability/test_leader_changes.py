"""A change of the leader neither ends nor starts an alert, and does not put it off."""

from datetime import timedelta

import pytest
from tests.observability.leader_changes import (
    CHANGE,
    ENDED,
    FIRING,
    LEADERLESS,
    STEPS,
    changing_leaders,
    gauge,
)

LEADING = {"penstock_operator_leading{}": f"1x{CHANGE + STEPS}"}
ANY = 'ALERTS{alertstate="firing"}'


def every_minute(first, last):
    return [timedelta(minutes=each) for each in range(first, last)]


@pytest.mark.parametrize("kind", FIRING)
def test_a_firing_alert_goes_on(kind, passes):
    change = FIRING[kind]
    firing = f'ALERTS{{alertname="{change.firing}",alertstate="firing"}}'
    begin = int(change.fires_at.total_seconds()) // 60
    times = every_minute(begin, CHANGE + LEADERLESS + 30)
    passes(change.series | LEADING, [(firing, time, 1) for time in times])


@pytest.mark.parametrize("what", ENDED)
def test_what_ended_with_the_first_leader_fires_nothing(what, passes):
    times = every_minute(CHANGE - 10, CHANGE + LEADERLESS + 30)
    passes(ENDED[what] | LEADING, [(ANY, time, 0) for time in times])


@pytest.mark.parametrize("name", ["scaling_at_maximum", "longest_unready_seconds"])
def test_leaders_that_change_all_the_time_do_not_put_an_alert_off(name, passes):
    series = changing_leaders(gauge(name), 20)
    if name == "longest_unready_seconds":
        series = {each: values.replace("1x1", "1000x1") for each, values in series.items()}
    passes(series | LEADING, [(ANY, time, 1) for time in every_minute(18, 58)])
