"""Connections from each kind of source to each destination that the default values allow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.chart.gateway.values import Gateway
from penstock.chart.names import GATEWAY, OPERATOR, OPERATOR_PORT, selector
from penstock.core.manifests.network import role_labels
from penstock.core.spec.service import (
    ENGINE_PORT,
    EVALUATION,
    EVENTS_PORT,
    EVENTS_REPLAY_PORT,
    SERVE,
)

# Namespaces of the installation, of services, of another tenant and of Prometheus; the cluster's nodes; and
# what is neither a pod nor a node.
Place = Literal["installation", "services", "tenant", "monitoring", "nodes", "outside"]
# Names of a source and a destination.
Connection = tuple[str, str]

# Ports of no meaning, at which pods and hosts listen in tests and measurements.
OTHER_PORT = 9000
HTTPS_PORT, API_SERVER_PORT, DNS_PORT = 443, 6443, 53


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of client. labels: of its pod. reached: names of the destinations that it may connect to."""

    text: str
    place: Place
    labels: Mapping[str, str]
    reached: frozenset[str]


@dataclass(frozen=True, slots=True)
class Destination:
    """A port that clients connect to. labels: of its pod."""

    text: str
    place: Place
    labels: Mapping[str, str]
    port: int


DESTINATIONS: Mapping[str, Destination] = {
    "engine": Destination(
        f"engine, {ENGINE_PORT}", "services", role_labels(SERVE), ENGINE_PORT
    ),
    "engine-events": Destination(
        f"engine, {EVENTS_PORT}", "services", role_labels(SERVE), EVENTS_PORT
    ),
    "engine-replay": Destination(
        f"engine, {EVENTS_REPLAY_PORT}", "services", role_labels(SERVE), EVENTS_REPLAY_PORT
    ),
    "engine-other-port": Destination(
        "engine, another port", "services", role_labels(SERVE), OTHER_PORT
    ),
    "gateway": Destination(
        f"gateway, {Gateway().port}", "installation", selector(GATEWAY), Gateway().port
    ),
    "gateway-management": Destination(
        f"gateway, {Gateway().management_port}",
        "installation", selector(GATEWAY), Gateway().management_port,
    ),
    "operator": Destination(
        f"operator, {OPERATOR_PORT}", "installation", selector(OPERATOR), OPERATOR_PORT
    ),
    "dns": Destination("DNS", "outside", {}, DNS_PORT),
    "api-server": Destination("API server", "outside", {}, API_SERVER_PORT),
    "https": Destination(f"another host, {HTTPS_PORT}", "tenant", {}, HTTPS_PORT),
    "engine-port": Destination(f"no engine, {ENGINE_PORT}", "tenant", {}, ENGINE_PORT),
    "other-port": Destination("another host, another port", "tenant", {}, OTHER_PORT),
}  # fmt: skip

# Destinations that no policy of Penstock keeps other pods from.
_UNRESTRICTED = ("dns", "api-server", "https", "engine-port", "other-port")
_CLIENT = frozenset(("gateway", *_UNRESTRICTED))
_MANAGEMENT = frozenset(("gateway-management", "operator"))

SOURCES: Mapping[str, Source] = {
    "gateway": Source(
        "gateway", "installation", selector(GATEWAY),
        frozenset(("engine", "engine-events", "engine-replay", "dns", "api-server", "https")),
    ),
    "operator": Source(
        "operator", "installation", selector(OPERATOR),
        frozenset(("engine", "gateway-management", "dns", "api-server", "https")),
    ),
    "installation-pod": Source(
        "another pod in the namespace of the installation", "installation", {}, _CLIENT | _MANAGEMENT
    ),
    "engine": Source("engine", "services", role_labels(SERVE), _CLIENT),
    "evaluation": Source(
        "evaluation Job, or another pod of its namespace with its labels",
        "services", role_labels(EVALUATION), _CLIENT | {"engine"},
    ),
    "services-pod": Source("another pod in the namespace of a service", "services", {}, _CLIENT),
    "tenant-pod": Source("pod in another namespace", "tenant", {}, _CLIENT),
    "false-gateway": Source(
        "pod in another namespace with the labels of a gateway and an evaluation Job",
        "tenant", selector(GATEWAY) | role_labels(EVALUATION), _CLIENT,
    ),
    "false-operator": Source(
        "pod in another namespace with the labels of the operator and an engine",
        "tenant", selector(OPERATOR) | role_labels(SERVE), _CLIENT,
    ),
    "prometheus": Source(
        "Prometheus in another namespace", "monitoring",
        {"app.kubernetes.io/name": "prometheus"}, _CLIENT,
    ),
    "own-node": Source(
        "the node of the destination, and pods on its network", "nodes", {}, frozenset(DESTINATIONS)
    ),
    "other-node": Source("another node, and pods on its network", "nodes", {}, _CLIENT),
    "host": Source("a host outside of the cluster's nodes and pods", "outside", {}, _CLIENT),
}  # fmt: skip

# Sources whose egress is restricted.
EGRESS_RESTRICTED = ("gateway", "operator")


def default_connections() -> frozenset[Connection]:
    """All connections that an installation with default values allows."""
    return frozenset(
        (name, destination) for name, source in SOURCES.items() for destination in source.reached
    )
