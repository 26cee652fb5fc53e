"""Addresses of a cluster with kubelets: those of its nodes, pods and Services in 10.N.0.0/16.

10.N.0.1            this machine, where the control plane listens
10.N.0.2 …          the nodes
10.N.16.0/24 …      the pods of each node
10.N.224.0/20       Services
"""

from collections.abc import Iterable
from ipaddress import IPv4Network

POD_NETWORKS_START = 16
MAX_NODES = 16


def machine_address(network: int) -> str:
    """Address of this machine on the bridge to the nodes."""
    return f"10.{network}.0.1"


def node_address(network: int, index: int) -> str:
    return f"10.{network}.0.{2 + index}"


def pod_range(network: int, index: int) -> str:
    """Addresses of the pods of a node."""
    return f"10.{network}.{POD_NETWORKS_START + index}.0/24"


def all_pods(network: int) -> str:
    return f"10.{network}.{POD_NETWORKS_START}.0/20"


def is_free(network: int, targets: Iterable[str]) -> bool:
    """Whether no route overlaps 10.N.0.0/16. targets: of this machine's routes."""
    wanted = IPv4Network(f"10.{network}.0.0/16")
    return not any(IPv4Network(target, strict=False).overlaps(wanted) for target in targets)
