"""Evaluates NetworkPolicies as Kubernetes documents them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from penstock.core.observed.label_selector import selects


@dataclass(frozen=True, slots=True)
class Peer:
    """An end of a connection. namespace, labels: of a pod; None and empty for a host or a node."""

    namespace: str | None
    labels: Mapping[str, str]
    address: str


def allows(
    policies: Sequence[Any], source: Peer, destination: Peer, port: int, protocol: str = "TCP"
) -> bool:
    """Whether policies let a source connect to a port of a destination on another node."""
    return all(
        _side_allows(policies, direction, own, other, {"port": port, "protocol": protocol})
        for direction, own, other in (
            ("Egress", source, destination),
            ("Ingress", destination, source),
        )
    )


def _side_allows(
    policies: Sequence[Any], direction: str, own: Peer, other: Peer, port: Mapping[str, object]
) -> bool:
    """Whether the policies of one end allow the connection. A pod that none selects may do all."""
    selecting = [
        each["spec"]
        for each in policies
        if each["metadata"]["namespace"] == own.namespace
        and direction in each["spec"]["policyTypes"]
        and selects(each["spec"]["podSelector"], own.labels)
    ]
    rules = [rule for spec in selecting for rule in spec.get(direction.lower()) or []]
    peers = "to" if direction == "Egress" else "from"
    return not selecting or any(
        ("ports" not in rule or port in rule["ports"])
        and (not rule.get(peers) or _is_among(other, rule[peers], own.namespace))
        for rule in rules
    )


def _is_among(peer: Peer, described: Iterable[Any], namespace: str | None) -> bool:
    """Whether an end is one of the described peers of a policy in a namespace."""
    return any(_is(peer, each, namespace) for each in described)


def _is(peer: Peer, described: Any, namespace: str | None) -> bool:
    if block := described.get("ipBlock"):
        inside = [ip_address(peer.address) in ip_network(block["cidr"])]
        inside += [
            ip_address(peer.address) not in ip_network(each) for each in block.get("except", [])
        ]
        return all(inside)
    if peer.namespace is None:
        return False
    if "namespaceSelector" in described:
        own_labels = {"kubernetes.io/metadata.name": peer.namespace}
        is_in_namespace = selects(described["namespaceSelector"], own_labels)
    else:
        is_in_namespace = peer.namespace == namespace
    return is_in_namespace and selects(described.get("podSelector", {}), peer.labels)
