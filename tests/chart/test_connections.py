"""Connections that the chart's policies and that of engines allow, with each documented set of values."""

import json
from typing import Any

import pytest
from tests.chart.value_sets import IMAGE
from tests.support.network_policies import Peer, allows

from penstock.chart.connections.matrix import (
    DESTINATIONS,
    SOURCES,
    Place,
    default_connections,
)
from penstock.chart.connections.variants import VARIANTS, Site
from penstock.chart.names import OPERATOR
from penstock.chart.rendering.install import install_manifests
from penstock.chart.values.values import merged
from penstock.controller.services.engine_policies import engine_peers, gateway_peer
from penstock.core.manifests.network import engines_policy

SITE = Site(
    namespaces={
        "installation": "here", "services": "team-a", "tenant": "team-b", "monitoring": "monitoring",
    },
    api_server=("10.0.0.1", "10.96.0.1"),
    dns=("10.96.0.10",),
    nodes=("10.0.0.2", "10.0.0.3"),
    host="10.0.0.9",
)  # fmt: skip
ADDRESSES = {
    "api-server": "10.0.0.1", "dns": "10.96.0.10", "other-node": "10.0.0.3", "host": "10.0.0.9",
}  # fmt: skip
POD_ADDRESS = "10.244.0.7"


def policies(values: Any) -> list[Any]:
    """The policies of the chart, and that which the operator keeps in the namespace of services."""
    made = install_manifests(merged(IMAGE, values), SITE.namespaces["installation"])
    found = [each for each in made if each["kind"] == "NetworkPolicy"]
    (deployment,) = (
        each
        for each in made
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", OPERATOR)
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    flags = [arg for arg in container["args"] if arg.startswith("--engines-from=")]
    for flag in flags:
        peers = engine_peers(SITE.namespaces["installation"], json.loads(flag.split("=", 1)[1]))
        gateways = [gateway_peer(SITE.namespaces["installation"])]
        found.append(engines_policy(SITE.namespaces["services"], peers, gateways))
    return found


def peer(name: str, place: Place, labels: Any) -> Peer:
    return Peer(SITE.namespaces.get(place), labels, ADDRESSES.get(name, POD_ADDRESS))


def allowed(found: list[Any]) -> set[tuple[str, str]]:
    """Connections that policies allow, and those from a pod's own node, which none restricts."""
    connections = {("own-node", destination) for destination in DESTINATIONS}
    for name, source in SOURCES.items():
        for key, destination in DESTINATIONS.items():
            protocols = ("UDP", "TCP") if key == "dns" else ("TCP",)
            ends = (
                peer(name, source.place, source.labels),
                peer(key, destination.place, destination.labels),
            )
            if all(allows(found, *ends, destination.port, each) for each in protocols):
                connections.add((name, key))
    return connections


def test_default_values_allow_the_documented_connections() -> None:
    assert allowed(policies({})) == default_connections()


@pytest.mark.parametrize("name", VARIANTS)
def test_values_change_the_documented_connections(name: str) -> None:
    variant = VARIANTS[name]
    found = [*policies(variant.values(SITE)), *variant.policies(SITE)]
    assert allowed(found) == variant.connections()
    assert variant.opened.isdisjoint(default_connections())
    assert variant.closed <= default_connections()


def test_without_policies_everything_is_allowed() -> None:
    """The other tests see each denial: it is a policy's."""
    everything = {(source, destination) for source in SOURCES for destination in DESTINATIONS}
    assert allowed(policies({"networkPolicy": {"enabled": False}})) == everything


def test_dns_servers_may_listen_on_another_port_than_their_service() -> None:
    found, gateway = policies({}), SOURCES["gateway"]
    ends = (peer("gateway", gateway.place, gateway.labels), peer("dns", "outside", {}))
    assert allows(found, *ends, 5353, "UDP")
    assert not allows(found, *ends, 5354, "UDP")


def test_an_installation_for_one_namespace_reaches_engines_in_no_other() -> None:
    found = policies({"watchNamespace": "team-b"})
    gateway, engine = SOURCES["gateway"], DESTINATIONS["engine"]
    source = peer("gateway", gateway.place, gateway.labels)
    reached = [
        allows(found, source, Peer(namespace, engine.labels, POD_ADDRESS), engine.port)
        for namespace in ("team-a", "team-b")
    ]
    assert reached == [False, True]
