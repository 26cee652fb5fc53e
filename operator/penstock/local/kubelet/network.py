"""Network namespaces of the nodes, and the bridge that connects them with this machine."""

import json
import subprocess
from collections.abc import Iterator

from penstock.local.kubelet.addresses import machine_address, node_address, pod_range
from penstock.local.kubelet.commands import run
from penstock.local.record import Cluster


def bridge(cluster: Cluster) -> str:
    """Name of the bridge; those of interfaces have 15 characters at most."""
    return f"penstock-{cluster.network}"


def namespace(cluster: Cluster, index: int) -> str:
    """Name of a node's network namespace, as `ip netns` lists it."""
    return f"penstock-{cluster.network}-{index}"


def outer_link(cluster: Cluster, index: int) -> str:
    """Name of the end of a node's link that is on the bridge."""
    return f"pstk-{cluster.network}-{index}"


def create_bridge(cluster: Cluster) -> None:
    """Create the bridge with this machine's address, unless it exists."""
    name = bridge(cluster)
    if _ip("link", "show", name, check=False) != 0:
        _ip("link", "add", name, "type", "bridge")
    _ip("address", "replace", f"{machine_address(cluster.network)}/24", "dev", name)
    _ip("link", "set", name, "up")


def create_nodes(cluster: Cluster) -> None:
    """Create the network namespaces of all nodes, with routes between the pods of each two."""
    for index in range(cluster.num_nodes):
        _create_node(cluster, index)
    for line in _routes(cluster):
        _ip(*line)


def remove(cluster: Cluster) -> None:
    """Remove the namespaces and the bridge; routes go with them. Absent ones are left out."""
    for index in range(cluster.num_nodes):
        _ip("netns", "delete", namespace(cluster, index), check=False)
    _ip("link", "delete", bridge(cluster), check=False)


def routed_networks() -> list[str]:
    """Targets of this machine's routes, without the default route."""
    shown = subprocess.run(
        ["ip", "-json", "-4", "route", "show", "table", "all"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [route["dst"] for route in json.loads(shown.stdout) if route["dst"] != "default"]


def _create_node(cluster: Cluster, index: int) -> None:
    name = namespace(cluster, index)
    if _ip("netns", "exec", name, "true", check=False) == 0:
        return
    outside = outer_link(cluster, index)
    _ip("netns", "add", name)
    _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", outside, "master", bridge(cluster), "up")
    _ip("-n", name, "address", "add", f"{node_address(cluster.network, index)}/24", "dev", "eth0")
    for interface in ("lo", "eth0"):
        _ip("-n", name, "link", "set", interface, "up")
    _ip("-n", name, "route", "add", "default", "via", machine_address(cluster.network))
    _ip("netns", "exec", name, "sysctl", "-qw", "net.ipv4.ip_forward=1")


def _routes(cluster: Cluster) -> Iterator[list[str]]:
    """Arguments of `ip` for the routes to the pods of each node, and from this machine to Services."""
    network = cluster.network
    for index in range(cluster.num_nodes):
        to_pods = [
            "route",
            "replace",
            pod_range(network, index),
            "via",
            node_address(network, index),
        ]
        yield to_pods
        for other in range(cluster.num_nodes):
            if other != index:
                yield ["-n", namespace(cluster, other), *to_pods]
    yield ["route", "replace", cluster.service_range, "via", node_address(network, 0)]


def _ip(*arguments: str, check: bool = True) -> int:
    """Run `ip` and return its exit status. Raises ClusterError with `check`."""
    if check:
        run(["ip", *arguments])
        return 0
    return subprocess.run(["ip", *arguments], capture_output=True, check=False).returncode
