"""Chooses the network of a new cluster."""

import os
import socket
import zlib
from collections.abc import Collection, Iterable

from penstock.local.components import ETCD_PEER_PORT, ETCD_PORT, KUBELET_PORT
from penstock.local.kubelet.addresses import is_free
from penstock.local.kubelet.network import routed_networks
from penstock.local.record import API_PORT, HUB_PORT, ClusterError, NodeKind, clusters_root

FIRST_NETWORK, LAST_NETWORK = 10, 249
PORTS = (ETCD_PORT, ETCD_PEER_PORT, API_PORT, KUBELET_PORT, HUB_PORT)


def free_network(node: NodeKind, taken: Collection[int]) -> int:
    """Return the N of a free network, 127.N.0.0/16 or 10.N.0.0/16. Raises ClusterError.

    node: runs the cluster's pods. taken: networks of other clusters.
    """
    candidates = (number for number in _networks() if number not in taken)
    return _without_routes(candidates) if node == "kubelet" else _without_listeners(candidates)


def _without_routes(candidates: Iterable[int]) -> int:
    routed = routed_networks()
    for number in candidates:
        if is_free(number, routed):
            return number
    raise ClusterError(
        f"No network 10.N.0.0/16 with N from {FIRST_NETWORK} to {LAST_NETWORK} is free: each has a cluster, "
        "or overlaps a route of this machine (ip route). Remove a cluster (penstock local down)."
    )


def _without_listeners(candidates: Iterable[int]) -> int:
    in_use: set[int] = set()
    for number in candidates:
        ports = _ports_in_use(number)
        if not ports:
            return number
        in_use |= ports
    raise ClusterError(
        f"No loopback network is free: each has a cluster, or a process that listens on one of the ports "
        f"{sorted(in_use)}. Remove a cluster (penstock local down), or end the process that listens on "
        "such a port on all addresses, such as a kubelet."
    )


def _networks() -> list[int]:
    """The networks in the order in which they are tried.

    Each cache begins elsewhere: clusters of two caches that start at once see nothing of each other
    before their ports are taken.
    """
    networks = list(range(FIRST_NETWORK, LAST_NETWORK + 1))
    first = zlib.crc32(os.fsencode(clusters_root())) % len(networks)
    return networks[first:] + networks[:first]


def _ports_in_use(network: int) -> set[int]:
    """Return the component ports of 127.network.0.1 that any user's process listens on."""
    in_use = set()
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((f"127.{network}.0.1", port))
            except OSError:
                in_use.add(port)
    return in_use
