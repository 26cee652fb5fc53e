"""Dashboards and rules that the chart ships."""


def files() -> dict[str, str]:
    """Path in the chart -> content: files/dashboards/NAME.json and files/rules/NAME.yaml."""
    return {}
