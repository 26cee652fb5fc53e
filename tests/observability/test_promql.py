"""Expressions of dashboards count each series of a service once while the leader changes, by promtool."""

import subprocess

import pytest
import yaml
from tests.support.tools import prometheus

from penstock.observability.dashboards.promql import ENGINES, SERVICES
from penstock.observability.metrics import gateway, operator
from penstock_engine.contract import metric_specs as engine

REPLICAS = {
    f'{operator.READY_REPLICAS.name}{{service="a/chat",revision="{revision}",variant="",pod="{pod}"}}'
    for revision in ("b1", "c2")
    for pod in ("old-leader", "new-leader")
}
OF_GATEWAYS = {f'{gateway.IN_FLIGHT.name}{{service="a/chat",pod="{pod}"}}' for pod in "ab"}
OF_ENGINES = {f'{engine.RUNNING.name}{{service="a/chat",pod="{pod}"}}' for pod in "ab"}


@pytest.mark.parametrize(
    ("expression", "series"),
    [
        (SERVICES.sum(operator.READY_REPLICAS, "service"), REPLICAS),
        (SERVICES.sum(gateway.IN_FLIGHT, "service"), OF_GATEWAYS),
        (ENGINES.sum(engine.RUNNING, "service"), OF_ENGINES),
    ],
    ids=["leaders", "gateways", "engines"],
)
def test_sums_are_right_with_two_pods(expression, series, tmp_path):
    for variable in ("$service", "$revision", "$pod"):
        expression = expression.replace(variable, ".*")
    test = {
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": "1x5"} for name in sorted(series)],
                "promql_expr_test": [
                    {
                        "expr": expression,
                        "eval_time": "2m",
                        "exp_samples": [{"labels": '{service="a/chat"}', "value": 2}],
                    }
                ],
            }
        ]
    }
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump(test))
    promtool = prometheus.ensure("promtool", print)
    done = subprocess.run(
        [promtool, "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
