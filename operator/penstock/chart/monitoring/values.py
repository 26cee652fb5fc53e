"""Values of the objects for Prometheus and Grafana."""

from pydantic import Field

from penstock.chart.component.values import ValuesModel
from penstock.observability.alerts.rules import RUNBOOKS


class PodMonitor(ValuesModel):
    """PodMonitors of the Prometheus operator."""

    enabled: bool = Field(
        default=False,
        description="Create PodMonitors for operator, gateway and engines. Needs the CRDs of the "
        "Prometheus operator.",
    )
    interval: str = Field(
        default="15s", description="Scrape interval.", pattern=r"^[0-9]+(ms|s|m)$"
    )
    labels: dict[str, str] = Field(
        default={}, description="Labels by which a Prometheus selects the PodMonitors."
    )


class PrometheusRule(ValuesModel):
    """Alerts and recording rules for the Prometheus operator."""

    enabled: bool = Field(
        default=False,
        description="Create PrometheusRules. Needs the CRDs of the Prometheus operator.",
    )
    labels: dict[str, str] = Field(
        default={}, description="Labels by which a Prometheus selects the PrometheusRules."
    )
    runbooks_url: str = Field(
        default=RUNBOOKS,
        description="Base URL of the alerts' runbooks: the address at which you publish docs/runbooks, "
        "without a slash at its end. Links add /NAME, with the name of the alert.",
        pattern=r"^https?://[!-~]*[!-.0-~]$",  # it is put into a YAML file without quotes
    )


class Dashboards(ValuesModel):
    """Dashboards for Grafana, as ConfigMaps."""

    enabled: bool = Field(default=False, description="Create a ConfigMap for each dashboard.")
    labels: dict[str, str] = Field(
        default={"grafana_dashboard": "1"},
        description="Labels by which Grafana's sidecar finds the ConfigMaps.",
    )
    annotations: dict[str, str] = Field(
        default={}, description="Annotations of the ConfigMaps, such as the folder in Grafana."
    )


class Monitoring(ValuesModel):
    """Objects for Prometheus and Grafana."""

    pod_monitor: PodMonitor = Field(
        default=PodMonitor(), description="PodMonitors of the Prometheus operator."
    )
    prometheus_rule: PrometheusRule = Field(
        default=PrometheusRule(),
        description="Alerts and recording rules for the Prometheus operator.",
    )
    dashboards: Dashboards = Field(
        default=Dashboards(), description="Dashboards for Grafana, as ConfigMaps."
    )
