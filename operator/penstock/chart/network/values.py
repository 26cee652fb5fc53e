"""Values of the NetworkPolicies."""

from typing import Annotated

from pydantic import Field

from penstock.chart.component.values import AnyObject, ValuesModel

Port = Annotated[int, Field(ge=1, le=65535)]
# The API server refuses a peer without a selector or addresses.
Peer = Annotated[AnyObject, Field(min_length=1)]

# Errors of values that let peers connect to engines which no label selects.
NODES_MISSING = (
    "networkPolicy.enginesFrom must name the addresses of the nodes, which gateway.hostNetwork lets connect "
    "to engines; or set networkPolicy.engines to false"
)
PROMETHEUS_MISSING = (
    "networkPolicy.enginesFrom must name Prometheus, which monitoring.podMonitor lets connect to engines; or "
    "set networkPolicy.engines to false"
)


class NetworkPolicy(ValuesModel):
    """NetworkPolicies of operator, gateway, batch server, engines and the cache of nodes: connections that
    they do not need are denied."""

    enabled: bool = True
    """Restrict the connections of operator, gateway, batch server and the cache of nodes, and with `engines`
    those of engines."""
    engines: bool = True
    """Have the operator keep a NetworkPolicy in each namespace with services: only gateways, the operator,
    evaluation Jobs of canaries and enginesFrom may connect to engines, which authenticate nobody. Needs
    enabled."""
    engines_from: list[Peer] = Field(default=[])
    """Further peers that may connect to engines, as in a NetworkPolicy's `from`: Prometheus, and clients that
    use no gateway. With gateway.hostNetwork the nodes' addresses (`ipBlock`)."""
    gateway_from: list[Peer] = Field(default=[])
    """Peers that may connect to the gateway's port for clients, as in a NetworkPolicy's `from`. Empty:
    all."""
    metrics_from: list[Peer] = Field(default=[])
    """Peers that may connect to the ports for metrics besides the release's own namespace: Prometheus, and
    for the operator the API server (an `ipBlock`), through which `kubectl penstock explain`, `record` and
    `adapters` read."""
    api_server_ports: list[Port] = Field(default=[443, 6443, 8443, 16443], min_length=1)
    """Ports of the API server, before and after address translation."""
    api_server_to: list[Peer] = Field(default=[])
    """Addresses of the API server, as in a NetworkPolicy's `to`, before and after address translation. Empty:
    any address, at these ports."""
    dns_ports: list[Port] = Field(default=[53, 5353], min_length=1)
    """Ports of the DNS servers, before and after address translation: pods of OpenShift's listen on 5353."""
    dns_to: list[Peer] = Field(default=[])
    """DNS servers, as in a NetworkPolicy's `to`: kube-dns by its labels, or the address of a cache on the
    node (`ipBlock`). Empty: any address, at dnsPorts."""
    prometheus_ports: list[Port] = Field(default=[443, 9090], min_length=1)
    """Further ports of the servers in operator.metricsHosts and operator.prometheus, such as those after
    address translation."""
    collector_ports: list[Port] = Field(default=[443, 4318], min_length=1)
    """Further ports of the collector in tracing.endpoint, such as that after address translation."""
    issuers_to: list[Peer] = Field(default=[])
    """OIDC issuers whose tokens prove identities of Tenants, and servers of their keys, as in a
    NetworkPolicy's `to`. Empty: none but those that the rule for the API server lets the gateway reach, which
    without apiServerTo is any address at apiServerPorts."""
    issuer_ports: list[Port] = Field(default=[443, 8443], min_length=1)
    """Ports of the servers in issuersTo, before and after address translation."""
    source_ports: list[Port] = Field(default=[443], min_length=1)
    """Ports at which the cache of nodes connects to sources of models, at any address: of hubs, stores and
    registries, and of a mirror or proxy in operator.sourceVariables."""
    store_ports: list[Port] = Field(default=[443], min_length=1)
    """Ports at which the batch server connects to its bucket, at any address, with batch.storage.s3."""
    extra_egress: list[AnyObject] = Field(default=[])
    """Further egress rules of operator, gateway, batch server and the cache of nodes."""
