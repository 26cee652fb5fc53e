"""NetworkPolicies of operator and gateway, which deny what they do not list."""

from penstock.chart.names import GATEWAY, OPERATOR, OPERATOR_PORT, labels, selector
from penstock.chart.tree import ITEM, ForEach, If, ReleaseNamespace, Tree, Value, optional
from penstock.core.spec.service import ENGINE_PORT, ROLE_LABEL, SERVE, Object


def network_policies() -> list[Tree]:
    """The policies of operator and gateway. Probes come from the node, which policies do not restrict."""
    prometheus = {"ports": [ForEach("networkPolicy.prometheusPorts", _port(Value(ITEM)))]}
    gateway_ports = {"ports": [_port(Value("gateway.port"))]}
    operator_egress = [
        # A pod on the node's network has the node's address: no podSelector selects it.
        If("gateway.hostNetwork", gateway_ports, gateway_ports | {"to": [_pods(GATEWAY)]}),
        If("operator.metricsHosts", prometheus, If("operator.prometheus.url", prometheus)),
    ]
    collector = {"ports": [ForEach("networkPolicy.collectorPorts", _port(Value(ITEM)))]}
    gateway_egress = [If("tracing.endpoint", collector)]
    # The operator reads stats reports at the port of the clients.
    from_operator = If("networkPolicy.gatewayFrom", gateway_ports | {"from": [_pods(OPERATOR)]})
    return [
        If(
            "networkPolicy.enabled",
            _policy(OPERATOR, OPERATOR_PORT, "networkPolicy.metricsFrom", [], operator_egress),
        ),
        If(
            "networkPolicy.enabled",
            _policy(
                GATEWAY,
                Value("gateway.port"),
                "networkPolicy.gatewayFrom",
                [from_operator],
                gateway_egress,
            ),
        ),
    ]


def _policy(
    name: str, port: Tree, allowed_from: str, ingress: list[Tree], egress: list[Tree]
) -> Object:
    """A component's policy. port: that it listens on. allowed_from: path of its clients.

    ingress, egress: further rules.
    """
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
            "ingress": [{"ports": [_port(port)], "from": optional(allowed_from)}, *ingress],
            "egress": [
                {"ports": [{"port": 53, "protocol": "UDP"}, _port(53)]},
                {"ports": [ForEach("networkPolicy.apiServerPorts", _port(Value(ITEM)))]},
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
