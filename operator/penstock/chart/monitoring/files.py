"""Dashboards and rules that the chart ships."""

import json
from pathlib import Path

from penstock.observability.alerts.groups import rules_yaml

_PACKAGED = Path(__file__).with_name("dashboards")  # in a wheel (pyproject.toml, force-include)
_CHECKOUT = Path(__file__).parents[4] / "dashboards"


def files() -> dict[str, str]:
    """Path in the chart -> content: files/dashboards/NAME.json and files/rules/NAME.yaml."""
    folder = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
    dashboards = {
        f"files/dashboards/{path.name}": _compact(path.read_text())
        for path in sorted(folder.glob("*.json"))
    }
    return {**dashboards, "files/rules/alerts.yaml": rules_yaml()}


def _compact(text: str) -> str:
    """The same JSON on one line."""
    return json.dumps(json.loads(text), separators=(",", ":")) + "\n"
