"""Each alert fires in its incident and clears after it, by promtool; none fires in quiet times."""

import subprocess
from datetime import timedelta

import pytest
from tests.observability.alert_scenarios import INCIDENTS
from tests.observability.quiet_times import QUIET

from penstock.observability.alerts import groups

LEADER = {'penstock_operator_leading{pod="penstock-1"}': "1x5000"}


def test_promtool_accepts_the_rules(promtool, rules):
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", rules],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda each: f"{each.alert}{each.window}")
def test_an_alert_fires_and_clears(incident, passes):
    labels = {
        "alertname": incident.alert, "severity": incident.severity, "window": incident.window,
        "alertstate": "firing",
    }  # fmt: skip
    firing = "ALERTS{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
    others = f'ALERTS{{alertname!="{incident.alert}",alertstate="firing"}}'
    series = incident.series if "leading" in str(incident.series) else incident.series | LEADER
    passes(
        series,
        [
            (firing, timedelta(minutes=1), 0),
            (firing, incident.fires_at, 1),
            (others, incident.fires_at, 0),
            (firing, incident.clears_at, 0),
        ],
        incident.step,
    )


@pytest.mark.parametrize("alert", groups.ALERTS, ids=lambda each: each.name)
def test_an_expression_consists_of_its_quantities(alert):
    quantities = alert.condition.quantities
    assert quantities
    assert all(each in alert.expr for each in quantities)


def test_every_alert_has_an_incident():
    assert {each.alert for each in INCIDENTS} == {each.name for each in groups.ALERTS}


@pytest.mark.parametrize("quiet", QUIET, ids=lambda each: each.name)
def test_no_alert_fires_in_quiet_times(quiet, passes):
    times = range(0, int(quiet.length.total_seconds()), 300)
    passes(
        quiet.series | (LEADER if "leading" not in str(quiet.series) else {}),
        [('ALERTS{alertstate="firing"}', timedelta(seconds=each), 0) for each in times],
    )
