"""Installs Penstock into a local cluster."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.chart.names import GATEWAY, NAMESPACE, OPERATOR, selector
from penstock.chart.rendering.install import install_manifests
from penstock.chart.values.values import merged
from penstock.clients.kubernetes.client import Kube, connect
from penstock.clients.kubernetes.resources import DEPLOYMENTS
from penstock.clients.machine.clock import monotonic
from penstock.errors import KubeError, NotFound
from penstock.local.cluster import Cluster, ClusterError, Say
from penstock.local.kubelet.images import REPOSITORY
from penstock.local.models_claim import models_claim
from penstock.local.record import GATEWAY_MANAGEMENT_PORT, GATEWAY_PORT, GATEWAY_SERVICE

MANAGER = "penstock-local"
READY_TIMEOUT_S = 90.0
# The gateway of a node agent listens on the node's address, as there is no Service network.
AGENT_VALUES = {
    "image": {"repository": "penstock"},
    # The one user of the machine owns its files.
    "operator": {"replicas": 1, "allowedHostPaths": ["/"]},
    "gateway": {
        "replicas": 1,
        "port": GATEWAY_PORT,
        "managementPort": GATEWAY_MANAGEMENT_PORT,
        "hostNetwork": True,
    },
    "networkPolicy": {"enginesFrom": [{"ipBlock": {"cidr": "127.0.0.0/8"}}]},
}


def hub_values(cluster: Cluster) -> Mapping[str, Any]:
    """Values of the chart with which pods fetch models of hf:// from where the cluster has them."""
    if not cluster.has_hub_mirror:
        return {}
    return {"operator": {"sourceVariables": [f"HF_ENDPOINT={cluster.hub_url}"]}}


def _values(cluster: Cluster) -> Mapping[str, Any]:
    """Values of the chart on a local cluster."""
    return merged(_node_values(cluster), hub_values(cluster))


def _node_values(cluster: Cluster) -> Mapping[str, Any]:
    if cluster.node == "agent":
        return AGENT_VALUES
    # Nodes with kubelets enforce policies, which would keep this machine and its API server out.
    machine = [{"ipBlock": {"cidr": f"{cluster.address}/32"}}]
    return {
        "image": {"repository": REPOSITORY},
        "operator": {"replicas": 1},
        "gateway": {"replicas": 1},
        "networkPolicy": {"enginesFrom": machine, "metricsFrom": machine},
    }


async def install(cluster: Cluster, *, say: Say, values: Mapping[str, Any] = {}) -> None:
    """Apply CRDs, operator and gateway, and wait until both are ready. Raises ClusterError.

    values: of the chart, in addition to those that every local cluster has.
    """
    manifests = install_manifests(merged(_values(cluster), values))
    if cluster.node == "kubelet":
        manifests.append(gateway_service(cluster))
    async with await connect(cluster.kubeconfig) as kube:
        say("installing the operator and the gateway")
        for manifest in manifests:
            await apply(kube, manifest)
        deadline_s = monotonic() + READY_TIMEOUT_S
        for name in (OPERATOR, GATEWAY):
            say(f"waiting for {name}")
            while not await _is_available(kube, name):
                if monotonic() > deadline_s:
                    raise ClusterError(f"{name} did not become ready; see: {_logs(cluster, name)}")
                await asyncio.sleep(0.3)


def _logs(cluster: Cluster, name: str) -> str:
    """The command that prints the log of a Deployment's pod."""
    if cluster.node == "kubelet":
        return f"kubectl logs -n {NAMESPACE} deployment/{name}"
    return f"penstock local logs {name} --name {cluster.name}"


def gateway_service(cluster: Cluster) -> dict[str, Any]:
    """Build a Service of the gateway with the address that `gateway_url` names."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "penstock-local", "namespace": NAMESPACE},
        "spec": {
            "clusterIP": cluster.service_address(GATEWAY_SERVICE),
            "selector": selector(GATEWAY),
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    }


async def install_models(cluster: Cluster, folder: Path, *, say: Say) -> None:
    """Apply the claim `models` with `folder` as its volume, in namespace default."""
    say(f"mounting {folder} as the claim models")
    folder.mkdir(parents=True, exist_ok=True)
    async with await connect(cluster.kubeconfig) as kube:
        for manifest in models_claim(folder):
            await apply(kube, manifest)


async def apply(kube: Kube, manifest: dict[str, object]) -> None:
    """Apply one object, with retries for 10 s: its namespace or kind may be too new to be known."""
    for attempt in range(40):
        try:
            await kube.apply(manifest, manager=MANAGER)
            return
        except (NotFound, KubeError):
            if attempt == 39:
                raise
            await asyncio.sleep(0.25)


async def _is_available(kube: Kube, name: str) -> bool:
    deployment = await kube.get(DEPLOYMENTS, NAMESPACE, name)
    return bool(deployment.get("status", {}).get("availableReplicas"))
