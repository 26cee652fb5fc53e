"""DNS and the metrics API of a cluster with kubelets: programs of this machine behind Services."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.local.kubelet.access import COREDNS, METRICS_SERVER
from penstock.local.kubelet.configuration import CLUSTER_DOMAIN, client_kubeconfig
from penstock.local.record import DNS_SERVICE, Cluster

NAMESPACE = "kube-system"
# Pods reach it at this port also after the translation of the Service's address: policies allow port 53.
DNS_PORT = 53
METRICS_PORT = 4443
METRICS_SERVER_HOST = f"{METRICS_SERVER}.{NAMESPACE}.svc"
# Programs, with the port of each at the cluster's address.
PORTS = {COREDNS: DNS_PORT, METRICS_SERVER: METRICS_PORT}


def files(cluster: Cluster) -> dict[str, str]:
    """Build the files of the programs: paths below the cluster's folder, and their text."""
    configs = {f"{user}.kubeconfig": client_kubeconfig(cluster, user) for user in PORTS}
    return {"Corefile": _corefile(cluster)} | configs


def commands(cluster: Cluster, tools: Mapping[str, Path]) -> dict[str, list[str]]:
    """Build the command lines, by component."""
    folder, pki = cluster.folder, cluster.folder / "pki"
    config = f"{folder}/{METRICS_SERVER}.kubeconfig"
    return {
        COREDNS: [str(tools[COREDNS]), f"-conf={folder}/Corefile"],
        METRICS_SERVER: [
            str(tools[METRICS_SERVER]), f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}",
            f"--bind-address={cluster.address}", f"--secure-port={METRICS_PORT}",
            f"--tls-cert-file={pki}/{METRICS_SERVER}.crt",
            f"--tls-private-key-file={pki}/{METRICS_SERVER}.key",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={pki}/ca.crt", "--metric-resolution=15s",
        ],
    }  # fmt: skip


def objects(cluster: Cluster, ca_bundle: str) -> list[dict[str, Any]]:
    """Build the Services, their endpoints and the metrics API. ca_bundle: certificate in base64."""
    dns_ports = [
        {"name": f"dns-{protocol.lower()}", "port": DNS_PORT, "protocol": protocol}
        for protocol in ("UDP", "TCP")
    ]
    https = {"name": "https", "port": 443, "protocol": "TCP"}
    address = cluster.service_address(DNS_SERVICE)
    return [
        _service("kube-dns", dns_ports, {"clusterIP": address}),
        _endpoints("kube-dns", dns_ports, cluster),
        _service(METRICS_SERVER, [https], {}),
        _endpoints(METRICS_SERVER, [https | {"port": METRICS_PORT}], cluster),
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "service": {"name": METRICS_SERVER, "namespace": NAMESPACE},
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "caBundle": ca_bundle,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]


def _service(name: str, ports: list[dict[str, Any]], spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"ports": ports, **spec},
    }


def _endpoints(name: str, ports: list[dict[str, Any]], cluster: Cluster) -> dict[str, Any]:
    """Build the endpoints of a Service without a selector: this machine."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-machine",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [{"addresses": [cluster.address]}],
    }


def _corefile(cluster: Cluster) -> str:
    return f""".:{DNS_PORT} {{
    bind {cluster.address}
    errors
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {cluster.folder}/{COREDNS}.kubeconfig
        pods insecure
    }}
    cache 30
}}
"""
