"""Objects for the Prometheus operator and Grafana: monitors, alerts, dashboards."""

from penstock.chart.names import GATEWAY, OPERATOR, labels, selector
from penstock.chart.tree import (
    FileName,
    FileText,
    FileYaml,
    ForEachFile,
    If,
    Merge,
    ReleaseNamespace,
    Text,
    Tree,
    Value,
    optional,
)
from penstock.core.spec.service import (
    COHORT_LABEL,
    ENGINE_PORT_NAME,
    MANAGED_BY,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVE,
    SERVICE_LABEL,
    VARIANT_LABEL,
    Object,
)

ENGINES = "penstock-engines"
# Label values of pods that their series get, as serving_penstock_dev_service and so on.
_ENGINE_LABELS = [SERVICE_LABEL, REVISION_LABEL, COHORT_LABEL, VARIANT_LABEL]


def monitoring() -> list[Tree]:
    """PodMonitors, PrometheusRules and dashboards: those that the values ask for."""
    namespaces = If("watchNamespace", {"matchNames": [Value("watchNamespace")]}, {"any": True})
    engines = _monitor(ENGINES, {ROLE_LABEL: SERVE}, ENGINE_PORT_NAME)
    engines["spec"] |= {"namespaceSelector": namespaces, "podTargetLabels": _ENGINE_LABELS}
    monitors = [
        _monitor(OPERATOR, selector(OPERATOR), "http"),
        _monitor(GATEWAY, selector(GATEWAY), "http"),
        engines,
    ]
    return [
        *(If("monitoring.podMonitor.enabled", monitor) for monitor in monitors),
        If("monitoring.prometheusRule.enabled", ForEachFile("files/rules/*.yaml", _rule())),
        If("monitoring.dashboards.enabled", ForEachFile("files/dashboards/*.json", _dashboard())),
    ]


def _monitor(name: str, match_labels: Object, port: str) -> Object:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": _metadata(name, name, "monitoring.podMonitor.labels"),
        "spec": {
            "selector": {"matchLabels": match_labels},
            "podMetricsEndpoints": [
                {"port": port, "interval": Value("monitoring.podMonitor.interval")}
            ],
        },
    }


def _rule() -> Object:
    name = Text.of("penstock-", FileName(".yaml"))
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": _metadata(name, MANAGED_BY, "monitoring.prometheusRule.labels"),
        "spec": FileYaml(),
    }


def _dashboard() -> Object:
    name = Text.of("penstock-dashboard-", FileName(".json"))
    metadata = _metadata(name, MANAGED_BY, "monitoring.dashboards.labels")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata | {"annotations": optional("monitoring.dashboards.annotations")},
        "data": {FileName(): FileText()},
    }


def _metadata(name: Tree, component: str, added_labels: str) -> Object:
    return {
        "name": name,
        "namespace": ReleaseNamespace(),
        "labels": Merge(labels(component), added_labels),
    }
