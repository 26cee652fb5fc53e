"""The network of a new cluster: none that another cluster, a route or a listening process has."""

import socket

import psutil
import pytest

from penstock.local import networks, processes
from penstock.local.networks import FIRST_NETWORK, LAST_NETWORK, free_network
from penstock.local.record import HUB_PORT, ClusterError

ALL = range(FIRST_NETWORK, LAST_NETWORK + 1)


def route(monkeypatch: pytest.MonkeyPatch, *targets: str) -> None:
    monkeypatch.setattr(networks, "routed_networks", lambda: [*targets])


def test_the_network_of_another_cluster_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    route(monkeypatch)
    assert free_network("kubelet", {*ALL} - {77}) == 77


def test_a_network_with_a_route_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    route(monkeypatch, "10.78.0.0/24")
    assert free_network("kubelet", {*ALL} - {77, 78}) == 77


def test_the_obstacle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    route(monkeypatch, "10.0.0.0/8")
    with pytest.raises(ClusterError, match=r"overlaps a route of this machine \(ip route\)"):
        free_network("kubelet", set())
    with pytest.raises(ClusterError, match="No loopback network is free"):
        free_network("agent", ALL)


def test_a_network_is_not_taken_where_another_program_listens_at_the_port_of_the_hub_mirror() -> (
    None
):
    with socket.socket() as other:
        other.bind(("127.77.0.1", HUB_PORT))
        other.listen()
        assert free_network("agent", {*ALL} - {77, 78}) == 78
        assert processes.listens(psutil.Process(), HUB_PORT)
        assert not processes.listens(psutil.Process(), HUB_PORT + 1)
        assert not processes.listens(psutil.Process().parent() or psutil.Process(1), HUB_PORT)
