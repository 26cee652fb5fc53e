"""NetworkPolicies of Penstock's own components, which deny what they do not list."""

from penstock.chart.names import (
    BATCH,
    BATCH_MANAGEMENT_PORT,
    BATCH_PORT,
    GATEWAY,
    NODE_CACHE,
    OPERATOR,
    OPERATOR_PORT,
    labels,
    selector,
)
from penstock.chart.tree import ITEM, ForEach, If, PortOf, ReleaseNamespace, Tree, Value, optional
from penstock.core.manifests.network import role_labels
from penstock.core.spec.service import (
    ENGINE_PORT,
    EVENTS_PORT,
    EVENTS_REPLAY_PORT,
    SERVE,
    Object,
)


def network_policies() -> list[Tree]:
    """The policies of all components. Probes come from the node, which policies do not restrict."""
    clients = {
        "ports": [_port(Value("gateway.port"))],
        "from": optional("networkPolicy.gatewayFrom"),
    }
    policies = [
        _ingress(OPERATOR, [_management(OPERATOR_PORT)]),
        _egress(OPERATOR, _operator_egress()),
        _ingress(GATEWAY, [clients, _lines(), _management(Value("gateway.managementPort"))]),
        _egress(GATEWAY, _gateway_egress()),
        If("nodeCache.enabled", _ingress(NODE_CACHE, [])),
        If("nodeCache.enabled", _node_cache_egress()),
        If("batch.enabled", _ingress(BATCH, [_relayed(), _management(BATCH_MANAGEMENT_PORT)])),
        If("batch.enabled", _batch_egress()),
    ]
    return [If("networkPolicy.enabled", policy) for policy in policies]


def _node_cache_egress() -> Object:
    """The policy for connections that the cache of nodes makes: pods ask it over a socket in its folder."""
    sources = {"ports": [ForEach("networkPolicy.sourcePorts", _port(Value(ITEM)))]}
    return _own_egress(NODE_CACHE, [sources])


def _lines() -> If:
    """The gateway's ingress rule for lines of batches, as gatewayFrom need not name the batch server."""
    return If("batch.enabled", {"ports": [_port(Value("gateway.port"))], "from": [_pods(BATCH)]})


def _relayed() -> Tree:
    """The batch server's ingress rule for requests that gateways relay."""
    ports = {"ports": [_port(BATCH_PORT)]}
    return If("gateway.hostNetwork", ports, ports | {"from": [_pods(GATEWAY)]})


def _batch_egress() -> Object:
    """The policy for connections that the batch server makes: to gateways, and to its bucket."""
    gateways = {"ports": [_port(Value("gateway.port"))]}
    bucket = {"ports": [ForEach("networkPolicy.storePorts", _port(Value(ITEM)))]}
    rules = [
        If("gateway.hostNetwork", gateways, gateways | {"to": [_pods(GATEWAY)]}),
        If("batch.storage.s3.url", bucket),
    ]
    return _own_egress(BATCH, rules)


def _own_egress(name: str, rules: list[Tree]) -> Object:
    """The policy for connections of a component that knows neither the API server nor engines."""
    every = [_dns(), *rules, ForEach("networkPolicy.extraEgress", Value(ITEM))]
    return _policy(f"{name}-egress", name, {"policyTypes": ["Egress"], "egress": every})


def _dns() -> Object:
    """The egress rule for DNS servers."""
    ports = [
        ForEach("networkPolicy.dnsPorts", {"port": Value(ITEM), "protocol": protocol})
        for protocol in ("UDP", "TCP")
    ]
    return {"ports": ports, "to": optional("networkPolicy.dnsTo")}


def _operator_egress() -> list[Tree]:
    """Rules for the gateways' reports and for Prometheus."""
    reports = {"ports": [_port(Value("gateway.managementPort"))]}
    prometheus = {
        "ports": [
            ForEach("networkPolicy.prometheusPorts", _port(Value(ITEM))),
            ForEach("operator.metricsHosts", _port(PortOf(ITEM))),
            If("operator.prometheus.url", _port(PortOf("operator.prometheus.url"))),
        ]
    }
    return [
        # A pod on the node's network has the node's address: no podSelector selects it.
        If("gateway.hostNetwork", reports, reports | {"to": [_pods(GATEWAY)]}),
        If("operator.metricsHosts", prometheus, If("operator.prometheus.url", prometheus)),
    ]


def _gateway_egress() -> list[Tree]:
    """Rules for block events, the collector of traces, OIDC issuers, the store of limits and the batches."""
    events = {
        "ports": [_port(EVENTS_PORT), _port(EVENTS_REPLAY_PORT)],
        "to": [_engines()],
    }
    collector = {
        "ports": [
            ForEach("networkPolicy.collectorPorts", _port(Value(ITEM))),
            _port(PortOf("tracing.endpoint")),
        ]
    }
    issuers = {
        "ports": [ForEach("networkPolicy.issuerPorts", _port(Value(ITEM)))],
        "to": Value("networkPolicy.issuersTo"),
    }
    store = {"ports": [_port(PortOf("gateway.quotaStore.url"))]}
    batches = {"ports": [_port(BATCH_PORT)], "to": [_pods(BATCH)]}
    return [
        events,
        If("tracing.endpoint", collector),
        If("networkPolicy.issuersTo", issuers),
        If("gateway.quotaStore.url", store),
        If("batch.enabled", batches),
    ]


def _management(port: Tree) -> Object:
    """The ingress rule of a port for metrics and reads: from its own namespace, and from named peers."""
    own_namespace: Object = {"podSelector": {}}
    peers = [own_namespace, ForEach("networkPolicy.metricsFrom", Value(ITEM))]
    return {"ports": [_port(port)], "from": peers}


def _ingress(name: str, rules: list[Tree]) -> Object:
    """A component's policy for connections to it."""
    return _policy(name, name, {"policyTypes": ["Ingress"], "ingress": rules})


def _egress(name: str, rules: list[Tree]) -> Object:
    """A component's policy for connections that it makes. rules: besides those of both components.

    It is an object of its own: kube-router, which k3s has, lets ingress rules of a policy allow egress too.
    """
    every = [
        _dns(),
        {
            "ports": [ForEach("networkPolicy.apiServerPorts", _port(Value(ITEM)))],
            "to": optional("networkPolicy.apiServerTo"),
        },
        {"ports": [_port(ENGINE_PORT)], "to": [_engines()]},
        *rules,
        ForEach("networkPolicy.extraEgress", Value(ITEM)),
    ]
    return _policy(f"{name}-egress", name, {"policyTypes": ["Egress"], "egress": every})


def _engines() -> Object:
    """The peer that is all engines of the installation."""
    namespaces = If(
        "watchNamespace",
        {"matchLabels": {"kubernetes.io/metadata.name": Value("watchNamespace")}},
        {},
    )
    return {
        "podSelector": {"matchLabels": role_labels(SERVE)},
        "namespaceSelector": namespaces,
    }


def _policy(name: str, component: str, rules: Object) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": ReleaseNamespace(), "labels": labels(component)},
        "spec": {"podSelector": {"matchLabels": selector(component)}, **rules},
    }


def _pods(name: str) -> Object:
    """The peer that is a component's pods, in the namespace of the installation."""
    return {"podSelector": {"matchLabels": selector(name)}}


def _port(port: Tree) -> Object:
    return {"port": port, "protocol": "TCP"}
