"""Values and policies that change which connections are allowed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.chart.connections.matrix import (
    DESTINATIONS,
    EGRESS_RESTRICTED,
    OTHER_PORT,
    SOURCES,
    Connection,
    Place,
    default_connections,
)
from penstock.chart.network.values import NetworkPolicy
from penstock.core.manifests.network import role_labels
from penstock.core.spec.service import SERVE, Object


@dataclass(frozen=True, slots=True)
class Site:
    """Names and addresses of a cluster.

    namespaces: name of each place that is a namespace. api_server: addresses before and after translation.
    host: address from which the API server connects to pods.
    """

    namespaces: Mapping[Place, str]
    api_server: Sequence[str]
    dns: Sequence[str]
    nodes: Sequence[str]
    host: str


@dataclass(frozen=True, slots=True)
class Variant:
    """A change of the chart's values, and which connections it opens and closes.

    policies: further policies of a user; values is empty then.
    """

    text: str
    opened: frozenset[Connection] = frozenset()
    closed: frozenset[Connection] = frozenset()
    values: Callable[[Site], Mapping[str, Any]] = lambda _: {}
    policies: Callable[[Site], Sequence[Object]] = lambda _: ()

    def connections(self) -> frozenset[Connection]:
        """All connections that are allowed."""
        return (default_connections() | self.opened) - self.closed


def engine_egress_policy(namespace: str) -> Object:
    """A user's policy by which engines may ask DNS servers, and connect to nothing else."""
    ports = [
        {"port": port, "protocol": protocol}
        for port in NetworkPolicy().dns_ports
        for protocol in ("UDP", "TCP")
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "engine-egress", "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": role_labels(SERVE)},
            "policyTypes": ["Egress"],
            "egress": [{"ports": ports}],
        },
    }


def _from(sources: Iterable[str], destinations: Iterable[str]) -> frozenset[Connection]:
    """The connections from each of some sources to each of some destinations."""
    reached = tuple(destinations)
    return frozenset((source, each) for source in sources for each in reached)


def _policy_values(**values: object) -> dict[str, Any]:
    return {"networkPolicy": values}


def _namespace_peer(name: str) -> Object:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def _prometheus(site: Site) -> Object:
    pods = {"podSelector": {"matchLabels": dict(SOURCES["prometheus"].labels)}}
    return _namespace_peer(site.namespaces["monitoring"]) | pods


def _addresses(addresses: Iterable[str]) -> list[Object]:
    return [{"ipBlock": {"cidr": f"{each}/32"}} for each in addresses]


_IN_SERVICES = tuple(name for name, each in SOURCES.items() if each.place == "services")

VARIANTS: Mapping[str, Variant] = {
    "open-engines": Variant(
        "`engines: false`",
        opened=_from(
            SOURCES.keys() - EGRESS_RESTRICTED,
            ("engine", "engine-events", "engine-replay", "engine-other-port"),
        )
        - default_connections(),
        values=lambda _: _policy_values(engines=False),
    ),
    "engines-from": Variant(
        "`enginesFrom` names Prometheus and the addresses of the nodes",
        opened=_from(("prometheus", "other-node"), ("engine",)),
        values=lambda site: _policy_values(
            enginesFrom=[_prometheus(site), *_addresses(site.nodes)]
        ),
    ),
    "gateway-from": Variant(
        "`gatewayFrom` names the namespace of a service",
        closed=_from(SOURCES.keys() - {*_IN_SERVICES, "own-node"}, ("gateway",))
        & default_connections(),
        values=lambda site: _policy_values(
            gatewayFrom=[_namespace_peer(site.namespaces["services"])]
        ),
    ),
    "metrics-from": Variant(
        "`metricsFrom` names Prometheus, and the API server, which is a host outside",
        opened=_from(("prometheus", "host"), ("gateway-management", "operator")),
        values=lambda site: _policy_values(
            metricsFrom=[_prometheus(site), *_addresses([site.host])]
        ),
    ),
    "egress-to": Variant(
        "`apiServerTo` and `dnsTo` name their addresses",
        closed=_from(EGRESS_RESTRICTED, ("https",)),
        values=lambda site: _policy_values(
            apiServerTo=_addresses(site.api_server), dnsTo=_addresses(site.dns)
        ),
    ),
    "issuers-to": Variant(
        "`apiServerTo` names its addresses, and `issuersTo` an issuer of tokens, which is another host",
        closed=_from(("operator",), ("https",)),
        values=lambda site: _policy_values(
            apiServerTo=_addresses(site.api_server),
            issuersTo=[_namespace_peer(site.namespaces["tenant"])],
        ),
    ),
    "quota-store": Variant(
        "`gateway.quotaStore.url` names another host and this port",
        opened=_from(("gateway",), ("other-port",)),
        values=lambda _: {
            "gateway": {"quotaStore": {"url": f"redis://store.example:{OTHER_PORT}"}}
        },
    ),
    "engine-egress": Variant(
        "the policy below, in the namespace of a service",
        closed=_from(("engine",), DESTINATIONS.keys() - {"dns"}) & default_connections(),
        policies=lambda site: [engine_egress_policy(site.namespaces["services"])],
    ),
}
