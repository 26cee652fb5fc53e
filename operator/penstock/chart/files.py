"""Dashboards and rules that the chart ships."""

from pathlib import Path

from penstock.observability.alerts.groups import rules_yaml

# Files that `penstock dashboards` writes. They are in the package, as installations lack Grafana's SDK.
DASHBOARDS = Path(__file__).with_name("dashboards")


def files() -> dict[str, str]:
    """Path in the chart -> content: files/dashboards/NAME.json and files/rules/NAME.yaml."""
    dashboards = {
        f"files/dashboards/{path.name}": path.read_text()
        for path in sorted(DASHBOARDS.glob("*.json"))
    }
    return {**dashboards, "files/rules/alerts.yaml": rules_yaml()}
