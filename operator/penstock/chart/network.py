"""NetworkPolicies of operator and gateway, which deny what they do not list."""

from penstock.chart.names import GATEWAY, OPERATOR, OPERATOR_PORT, labels, selector
from penstock.chart.tree import ITEM, ForEach, If, PortOf, ReleaseNamespace, Tree, Value, optional
from penstock.core.spec.service import ENGINE_PORT, ROLE_LABEL, SERVE, Object


def network_policies() -> list[Tree]:
    """The policies of operator and gateway. Probes come from the node, which policies do not restrict."""
    prometheus = {
        "ports": [
            ForEach("networkPolicy.prometheusPorts", _port(Value(ITEM))),
            ForEach("operator.metricsHosts", _port(PortOf(ITEM))),
            If("operator.prometheus.url", _port(PortOf("operator.prometheus.url"))),
        ]
    }
    # A gateway of a version without a management port has its report at the port for clients.
    gateway_ports = {
        "ports": [_port(Value("gateway.managementPort")), _port(Value("gateway.port"))]
    }
    operator_egress = [
        # A pod on the node's network has the node's address: no podSelector selects it.
        If("gateway.hostNetwork", gateway_ports, gateway_ports | {"to": [_pods(GATEWAY)]}),
        If("operator.metricsHosts", prometheus, If("operator.prometheus.url", prometheus)),
    ]
    collector = {
        "ports": [
            ForEach("networkPolicy.collectorPorts", _port(Value(ITEM))),
            _port(PortOf("tracing.endpoint")),
        ]
    }
    gateway_egress = [If("tracing.endpoint", collector)]
    clients = {
        "ports": [_port(Value("gateway.port"))],
        "from": optional("networkPolicy.gatewayFrom"),
    }
    gateway_ingress = [
        clients,
        If("networkPolicy.gatewayFrom", gateway_ports | {"from": [_pods(OPERATOR)]}),
        _management(Value("gateway.managementPort")),
    ]
    return [
        If(
            "networkPolicy.enabled",
            _policy(OPERATOR, [_management(OPERATOR_PORT)], operator_egress),
        ),
        If("networkPolicy.enabled", _policy(GATEWAY, gateway_ingress, gateway_egress)),
    ]


def _management(port: Tree) -> Object:
    """The ingress rule of a port for metrics and reads: from its own namespace, and from named peers."""
    own_namespace: Object = {"podSelector": {}}
    peers = [own_namespace, ForEach("networkPolicy.metricsFrom", Value(ITEM))]
    return {"ports": [_port(port)], "from": peers}


def _policy(name: str, ingress: list[Tree], egress: list[Tree]) -> Object:
    """A component's policy. egress: rules besides those that both components have."""
    namespaces = If(
        "watchNamespace",
        {"matchLabels": {"kubernetes.io/metadata.name": Value("watchNamespace")}},
        {},
    )
    engines = {"podSelector": {"matchLabels": {ROLE_LABEL: SERVE}}, "namespaceSelector": namespaces}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": ReleaseNamespace(), "labels": labels(name)},
        "spec": {
            "podSelector": {"matchLabels": selector(name)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": [
                {"ports": [{"port": 53, "protocol": "UDP"}, _port(53)]},
                {
                    "ports": [ForEach("networkPolicy.apiServerPorts", _port(Value(ITEM)))],
                    "to": optional("networkPolicy.apiServerTo"),
                },
                {"ports": [_port(ENGINE_PORT)], "to": [engines]},
                *egress,
                ForEach("networkPolicy.extraEgress", Value(ITEM)),
            ],
        },
    }


def _pods(name: str) -> Object:
    """The peer that is a component's pods, in the namespace of the installation."""
    return {"podSelector": {"matchLabels": selector(name)}}


def _port(port: Tree) -> Object:
    return {"port": port, "protocol": "TCP"}
