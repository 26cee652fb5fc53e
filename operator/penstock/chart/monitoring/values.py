"""Values of the objects for Prometheus and Grafana."""

from pydantic import Field

from penstock.chart.component.values import ValuesModel
from penstock.observability.alerts.rules import RUNBOOKS


class PodMonitor(ValuesModel):
    """PodMonitors of the Prometheus operator."""

    enabled: bool = False
    """Create PodMonitors for operator, gateway, batch server and engines. Needs the CRDs of the Prometheus
    operator."""
    interval: str = Field(default="15s", pattern=r"^[0-9]+(ms|s|m)$")
    """Scrape interval."""
    labels: dict[str, str] = Field(default={})
    """Labels by which a Prometheus selects the PodMonitors."""


class PrometheusRule(ValuesModel):
    """Alerts and recording rules for the Prometheus operator."""

    enabled: bool = False
    """Create PrometheusRules. Needs the CRDs of the Prometheus operator."""
    labels: dict[str, str] = Field(default={})
    """Labels by which a Prometheus selects the PrometheusRules."""
    # The pattern is narrow because the URL is put into a YAML file without quotes.
    runbooks_url: str = Field(default=RUNBOOKS, pattern=r"^https?://[!-~]*[!-.0-~]$")
    """Base URL of the alerts' runbooks: the address at which you publish docs/runbooks, without a slash at
    its end. Links add /NAME, with the name of the alert."""


class Dashboards(ValuesModel):
    """Dashboards for Grafana, as ConfigMaps."""

    enabled: bool = False
    """Create a ConfigMap for each dashboard."""
    labels: dict[str, str] = Field(default={"grafana_dashboard": "1"})
    """Labels by which Grafana's sidecar finds the ConfigMaps."""
    annotations: dict[str, str] = Field(default={})
    """Annotations of the ConfigMaps, such as the folder in Grafana."""


class Monitoring(ValuesModel):
    """Objects for Prometheus and Grafana."""

    pod_monitor: PodMonitor = PodMonitor()
    prometheus_rule: PrometheusRule = PrometheusRule()
    dashboards: Dashboards = Dashboards()
