"""Certificates of the programs of nodes."""

from penstock.local.components import FRONT_PROXY
from penstock.local.kubelet.access import METRICS_SERVER, RULES
from penstock.local.kubelet.addons import METRICS_SERVER_HOST
from penstock.local.kubelet.addresses import node_address
from penstock.local.kubelet.configuration import KUBE_PROXY, node_name
from penstock.local.pki import Authority
from penstock.local.record import Cluster


def issue(authority: Authority, cluster: Cluster) -> None:
    """Write a certificate for each kubelet, as a server and a client, and for each other program."""
    for index in range(cluster.num_nodes):
        name = node_name(index)
        authority.issue(
            name,
            f"system:node:{name}",
            organization="system:nodes",
            addresses=(node_address(cluster.network, index), name),
        )
    authority.issue(KUBE_PROXY, "system:kube-proxy")
    for user in RULES:
        authority.issue(
            user, user, addresses=(METRICS_SERVER_HOST,) if user == METRICS_SERVER else ()
        )
    authority.issue("front-proxy", FRONT_PROXY)
