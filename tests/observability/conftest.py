"""Fixtures that evaluate the alert rules with promtool."""

import subprocess
from datetime import timedelta

import pytest
import yaml
from tests.support.tools import prometheus

from penstock.observability.alerts import groups


@pytest.fixture(scope="session")
def promtool():
    return prometheus.ensure("promtool", print)


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(groups.rules_yaml())
    return path


def promtool_duration(time: timedelta) -> str:
    return f"{time.total_seconds():.0f}s"


@pytest.fixture
def passes(promtool, rules):
    """Runs a promtool unit test: how many alerts fire, by query, at each time."""

    def run(series, expected, step=timedelta(minutes=1)):
        test = {
            "rule_files": [str(rules)],
            "evaluation_interval": promtool_duration(step),
            "tests": [
                {
                    "interval": promtool_duration(step),
                    "input_series": [
                        {"series": name, "values": values} for name, values in series.items()
                    ],
                    "promql_expr_test": [
                        {
                            "expr": f"count({query})",
                            "eval_time": promtool_duration(time),
                            "exp_samples": [{"labels": "{}", "value": count}] if count else [],
                        }
                        for query, time, count in expected
                    ],
                }
            ],
        }
        path = rules.with_name("test.yaml")
        path.write_text(yaml.safe_dump(test))
        done = subprocess.run(
            [promtool, "test", "rules", path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run
