"""The operator's Deployment and disruption budget."""

from penstock.chart.component.deployment import ENGINE_IMAGE, deployment, disruption_budget, flag
from penstock.chart.names import OPERATOR, OPERATOR_PORT
from penstock.chart.network.values import NODES_MISSING, PROMETHEUS_MISSING
from penstock.chart.tree import ITEM, ForEach, If, Json, ReleaseNamespace, Text, Tree, Value
from penstock.core.spec.service import Object


def _engines_from(required: str = "") -> Text:
    return Text.of("--engines-from=", Json("networkPolicy.enginesFrom", required))


_ENGINES_FROM = If(
    "gateway.hostNetwork",
    _engines_from(NODES_MISSING),
    If("monitoring.podMonitor.enabled", _engines_from(PROMETHEUS_MISSING), _engines_from()),
)


def operator() -> list[Tree]:
    """The operator's Deployment and disruption budget."""
    container = {
        "command": ["penstock"],
        "args": [
            "operator", "run",
            Text.of("--engine-image=", ENGINE_IMAGE),
            "--host=$(POD_IP)", f"--port={OPERATOR_PORT}",
            Text.of("--lease-namespace=", ReleaseNamespace()),
            flag("--namespace=", "watchNamespace"),
            flag("--log-level=", "logLevel"),
            If("gateway.tls.secretName", "--gateway-tls"),
            ForEach("operator.metricsHosts", Text.of("--metrics-host=", Value(ITEM))),
            If("operator.allowUnrestrictedTemplates", "--allow-unrestricted-templates"),
            ForEach("operator.allowedHostPaths", Text.of("--allowed-host-path=", Value(ITEM))),
            ForEach(
                "operator.allowedServiceAccounts",
                Text.of("--allowed-service-account=", Value(ITEM)),
            ),
            ForEach("operator.sourceVariables", Text.of("--source-variable=", Value(ITEM))),
            If("nodeCache.enabled", Text.of("--node-cache-path=", Value("nodeCache.path"))),
            If("networkPolicy.enabled", If("networkPolicy.engines", _ENGINES_FROM)),
            flag("--prometheus-url=", "operator.prometheus.url"),
            flag("--prometheus-token-file=", "operator.prometheus.tokenFile"),
            flag("--prometheus-ca-file=", "operator.prometheus.caFile"),
            ForEach("operator.extraArgs", Value(ITEM)),
        ],
        "ports": [{"name": "http", "containerPort": OPERATOR_PORT, "protocol": "TCP"}],
    }  # fmt: skip
    spec: Object = {"replicas": Value("operator.replicas")}
    return [
        deployment(OPERATOR, "operator", container, probed="http", pod={}, spec=spec),
        disruption_budget(OPERATOR),
    ]
