"""Configuration files of the kubelet, containerd, the network plugins and kube-proxy of a node."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.local.components import kubeconfig
from penstock.local.kubelet import addresses, cgroups
from penstock.local.kubelet.access import KUBE_ROUTER
from penstock.local.record import DNS_SERVICE, Cluster

PAUSE_IMAGE = "penstock.local/pause:1"
CLUSTER_DOMAIN = "cluster.local"
KUBE_PROXY = "kube-proxy"  # name of its certificate
# The path is one of the node's mount namespace, where /run belongs to the node.
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


def node_name(index: int) -> str:
    return f"penstock-node-{index}"


def nodes_folder(cluster: Cluster) -> Path:
    """Folder of the files of all nodes."""
    return cluster.folder / "nodes"


def node_folder(cluster: Cluster, index: int) -> Path:
    """Folder of a node's files: configuration, images, pods and logs."""
    return nodes_folder(cluster) / node_name(index)


def kubelet(cluster: Cluster, index: int) -> dict[str, Any]:
    """Build a KubeletConfiguration."""
    folder, pki = node_folder(cluster, index), cluster.folder / "pki"
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": addresses.node_address(cluster.network, index),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/{node_name(index)}.crt",
        "tlsPrivateKeyFile": f"{pki}/{node_name(index)}.key",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups.group(cluster, node_name(index)),
        "clusterDNS": [cluster.service_address(DNS_SERVICE)],
        "clusterDomain": CLUSTER_DOMAIN,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "enforceNodeAllocatable": [],
        # The disk is the machine's: 10 %, the default, may be missing for reasons of its own.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "oomScoreAdj": 0,  # lowering it takes CAP_SYS_RESOURCE, which a virtual machine may lack
        "serializeImagePulls": False,
        "volumePluginDir": f"{folder}/volume-plugins",
    }


def containerd(folder: Path, plugins: Path) -> str:
    """Build containerd's configuration as TOML. folder: of the node. plugins: folder of CNI plugins."""
    return f"""version = 3
root = "{folder}/containerd"
state = "/run/containerd"

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.cri.v1.runtime']
# Without CAP_SYS_RESOURCE, runc fails where it would lower the value.
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{plugins}"]
conf_dir = "{folder}/cni"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def pod_network(cluster: Cluster, index: int) -> dict[str, Any]:
    """Build the list of network plugins. Each pod has a link of its own: what it sends is routed."""
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": f"{node_folder(cluster, index)}/addresses",
                    "ranges": [[{"subnet": addresses.pod_range(cluster.network, index)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kube_proxy(cluster: Cluster, index: int) -> dict[str, Any]:
    """Build a KubeProxyConfiguration."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{node_folder(cluster, index)}/kube-proxy.kubeconfig"},
        "clusterCIDR": addresses.all_pods(cluster.network),
        "conntrack": {"maxPerCore": 0, "min": 0},
        "detectLocalMode": "ClusterCIDR",
        "hostnameOverride": node_name(index),
        "mode": "nftables",
    }


def client_kubeconfig(cluster: Cluster, certificate: str) -> str:
    """Write a kubeconfig. certificate: name of the client's certificate in the cluster's folder pki."""
    pki = cluster.folder / "pki"
    user = {
        "client-certificate": f"{pki}/{certificate}.crt",
        "client-key": f"{pki}/{certificate}.key",
    }
    return kubeconfig(cluster.server, pki / "ca.crt", user)


def files(cluster: Cluster, index: int, tools: Mapping[str, Path]) -> dict[str, str]:
    """Build a node's files: paths below its folder, and their text."""
    plugins = tools["ptp"].parent
    return {
        "kubelet.json": json.dumps(kubelet(cluster, index)),
        "kubelet.kubeconfig": client_kubeconfig(cluster, node_name(index)),
        "kube-proxy.json": json.dumps(kube_proxy(cluster, index)),
        "kube-proxy.kubeconfig": client_kubeconfig(cluster, KUBE_PROXY),
        "kube-router.kubeconfig": client_kubeconfig(cluster, KUBE_ROUTER),
        "containerd.toml": containerd(node_folder(cluster, index), plugins),
        "cni/10-pods.conflist": json.dumps(pod_network(cluster, index)),
    }
