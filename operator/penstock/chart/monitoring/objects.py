"""Objects for the Prometheus operator and Grafana: monitors, alerts, dashboards."""

import re

from penstock.chart.names import BATCH, GATEWAY, MANAGEMENT_PORT_NAME, OPERATOR, labels, selector
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
from penstock.observability.alerts.rules import RUNBOOKS

ENGINES = "penstock-engines"


def monitoring() -> list[Tree]:
    """PodMonitors, PrometheusRules and dashboards, each if its values enable it."""
    namespaces = If("watchNamespace", {"matchNames": [Value("watchNamespace")]}, {"any": True})
    engines = _monitor(ENGINES, {ROLE_LABEL: SERVE}, ENGINE_PORT_NAME)
    engines["spec"]["namespaceSelector"] = namespaces
    engines["spec"]["podMetricsEndpoints"][0]["relabelings"] = _engine_labels()
    monitors = [
        _monitor(OPERATOR, selector(OPERATOR), "http"),
        _monitor(GATEWAY, selector(GATEWAY), MANAGEMENT_PORT_NAME),
        If("batch.enabled", _monitor(BATCH, selector(BATCH), MANAGEMENT_PORT_NAME)),
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


def _engine_labels() -> list[Object]:
    """Relabelings that give series of engines the labels that series of operator and gateway have."""
    service = {
        "sourceLabels": ["__meta_kubernetes_namespace", _meta_label(SERVICE_LABEL)],
        "separator": "/",
        "targetLabel": "service",
    }
    others = {"revision": REVISION_LABEL, "cohort": COHORT_LABEL, "variant": VARIANT_LABEL}
    return [
        service,
        *(
            {"sourceLabels": [_meta_label(label)], "targetLabel": name}
            for name, label in others.items()
        ),
    ]


def _meta_label(label: str) -> str:
    """Name of a pod's label in the service discovery of Prometheus."""
    return "__meta_kubernetes_pod_label_" + re.sub(r"[^a-zA-Z0-9_]", "_", label)


def _rule() -> Object:
    name = Text.of("penstock-", FileName(".yaml"))
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": _metadata(name, MANAGED_BY, "monitoring.prometheusRule.labels"),
        "spec": FileYaml(RUNBOOKS, "monitoring.prometheusRule.runbooksUrl"),
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
