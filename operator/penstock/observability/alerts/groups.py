"""All groups of alert rules, and their file."""

from penstock.observability.alerts import burn_rate, control_plane, engines, services, tenants
from penstock.observability.alerts.rules import Alert, rule_file

GROUPS = (burn_rate.GROUP, services.GROUP, engines.GROUP, control_plane.GROUP, tenants.GROUP)
ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS for alert in group.alerts)

NOTE = (
    "# Generated from operator/penstock/observability/alerts/ by `penstock chart`; do not edit.\n"
)


def rules_yaml() -> str:
    """The text of the file of all rules, for Prometheus."""
    return NOTE + rule_file(GROUPS)
