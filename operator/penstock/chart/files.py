"""Dashboards and rules that the chart ships."""

from penstock.observability.alerts.groups import rules_yaml


def files() -> dict[str, str]:
    """Path in the chart -> content: files/dashboards/NAME.json and files/rules/NAME.yaml."""
    return {"files/rules/alerts.yaml": rules_yaml()}
