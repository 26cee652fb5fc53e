"""Certificates of the programs of nodes."""

from penstock.local.components import FRONT_PROXY
from penstock.local.kubelet.addons import METRICS_SERVER, METRICS_SERVER_HOST
from penstock.local.kubelet.addresses import node_address
from penstock.local.kubelet.configuration import node_name
from penstock.local.pki import Authority
from penstock.local.record import Cluster


def issue(authority: Authority, cluster: Cluster) -> None:
    """Write a certificate for each kubelet, which is both its server's and its client's, and for proxies."""
    for index in range(cluster.num_nodes):
        name = node_name(index)
        authority.issue(
            name,
            f"system:node:{name}",
            organization="system:nodes",
            addresses=(node_address(cluster.network, index), name),
        )
    authority.issue("kube-proxy", "system:kube-proxy")
    authority.issue("kube-router", "kube-router")
    authority.issue("coredns", "coredns")
    authority.issue(METRICS_SERVER, METRICS_SERVER, addresses=(METRICS_SERVER_HOST,))
    authority.issue("front-proxy", FRONT_PROXY)
