"""All groups of rules, and their file."""

from penstock.observability.alerts import burn_rate, control_plane, engines, services
from penstock.observability.alerts.rules import Alert, rule_file

GROUPS = (burn_rate.GROUP, services.GROUP, engines.GROUP, control_plane.GROUP)
ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS for alert in group.alerts)

NOTE = (
    "# Generated from operator/penstock/observability/alerts/ by `penstock alerts`; do not edit.\n"
)


def files() -> dict[str, str]:
    """File name -> content of the generated file of rules."""
    return {"rules.yaml": NOTE + rule_file(GROUPS)}
