"""The cluster with real nodes on which the scenarios run, with the chart installed by Helm."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.real_node.commands import output
from tests.support.cluster.helm import CHART, Release
from tests.support.cluster.manifests import RESTRICTED, TINY

from penstock.chart.names import GATEWAY, NAMESPACE, OPERATOR
from penstock.clients.kubernetes.client import Kube, connect
from penstock.demo.kubectl import Kubectl
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage
from penstock.local import cluster as clusters
from penstock.local import processes
from penstock.local.cluster import Cluster
from penstock.local.install import gateway_service
from penstock.local.kubelet import cgroups, network
from penstock.local.kubelet.images import REPOSITORY
from penstock.local.kubelet.nodes import load_built_images
from penstock.local.versions import CONTAINERD, KUBERNETES

ROOT = Path(__file__).parents[2]
NUM_NODES = 2
# The chart's values that have no default.
VALUES = {"image": {"repository": REPOSITORY}}
# An engine computes in one thread here: three engines of a canary fit on nodes with two cores.
ENGINE_RESOURCES = TINY["resources"]


@dataclass(frozen=True, slots=True)
class Lab:
    """A cluster with Penstock, and a folder for results. models: folder of the demo's model."""

    cluster: Cluster
    kube: Kube
    stage: Stage
    out: Path
    models: Path

    @property
    def kubectl(self) -> Kubectl:
        return self.stage.kubectl

    @asynccontextmanager
    async def namespace(self, prefix: str) -> AsyncIterator[str]:
        """Run with a new namespace that has the claim `models`; delete it at the end and wait."""
        name = f"{prefix}-{secrets.token_hex(2)}"
        metadata = {"name": name, "labels": RESTRICTED}
        self.stage.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self.stage.mount_models(self.models, name)
        try:
            yield name
        finally:
            self.kubectl("delete", "namespace", name, timeout_s=180)
            self.kubectl("delete", "persistentvolume", f"models-{name}", "--wait=false")

    @asynccontextmanager
    async def stage_in_namespace(self, prefix: str) -> AsyncIterator[Stage]:
        """Run with a stage in a new namespace that has the claim `models`."""
        async with self.namespace(prefix) as name:
            stage = Stage(self.cluster, self.kube, name)
            try:
                yield stage
            finally:
                await stage.close()

    async def helm(self, command: str, *arguments: str | Path) -> None:
        """Run a command of Helm for the release, and wait. Raises AssertionError."""
        await Release(self.cluster)(command, *arguments)


async def start_cluster(name: str) -> dict[str, object]:
    """Start a cluster of two nodes, and load the images that `make images` built."""

    def start() -> None:
        cluster = clusters.up(name, say=print, node="kubelet", num_nodes=NUM_NODES)
        load_built_images(cluster, say=print)

    await asyncio.to_thread(start)
    return {"nodes": NUM_NODES, "kubernetes": KUBERNETES, "containerd": CONTAINERD}


async def remove_cluster(name: str) -> dict[str, object]:
    """Remove the cluster, and check that nothing of it is left on this machine."""
    if (cluster := clusters.find(name)) is None:
        return {}
    await asyncio.to_thread(clusters.down, name)
    left = _count_remains(cluster)
    assert not any(left.values()), left
    return {"left": left}


def _count_remains(cluster: Cluster) -> dict[str, int]:
    links = {network.outer_link(cluster, index) for index in range(cluster.num_nodes)}
    namespaces = {network.namespace(cluster, index) for index in range(cluster.num_nodes)}
    groups = cgroups.ROOT.rglob(cgroups.group(cluster).lstrip("/"))
    return {
        "processes": len(processes.find(cluster.cluster_id)),
        "interfaces": len(_names("-json", "link") & {network.bridge(cluster), *links}),
        "network namespaces": len(_names("-json", "netns") & namespaces),
        "mounts": Path("/proc/mounts").read_text().count(f"{cluster.folder}/"),
        "control groups": len(list(groups)),
        "folders": int(cluster.folder.exists()),
    }


def _names(*arguments: str) -> set[str]:
    """Names of the interfaces or network namespaces that `ip` lists as JSON."""
    listed = json.loads(output("ip", *arguments) or "[]")
    return {str(each.get("ifname") or each.get("name")) for each in listed}


@asynccontextmanager
async def open_lab(cluster: Cluster, out: Path) -> AsyncIterator[Lab]:
    """Open the clients of a running cluster."""
    async with await connect(cluster.kubeconfig) as kube:
        stage = Stage(cluster, kube)
        try:
            yield Lab(cluster, kube, stage, out, ensure_model(ROOT / "docs"))
        finally:
            await stage.close()


async def install_chart(lab: Lab) -> dict[str, object]:
    """Install the chart with its default values, in a namespace that enforces restricted pods."""
    metadata = {"name": NAMESPACE, "labels": RESTRICTED}
    lab.stage.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    values = lab.out / "values.json"
    values.write_text(json.dumps(chart_values(lab.cluster)))
    await lab.helm("install", CHART, f"--values={values}")
    lab.stage.apply(gateway_service(lab.cluster))
    pods = json.loads(lab.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    return {
        f"{name}_pods": sum(pod["metadata"]["name"].startswith(name) for pod in pods)
        for name in (OPERATOR, GATEWAY)
    }


def chart_values(cluster: Cluster) -> dict[str, Any]:
    """Values of the installation on a cluster whose nodes enforce NetworkPolicies.

    `kubectl penstock explain` reads from the operator through the API server.
    """
    api_server = {"ipBlock": {"cidr": f"{cluster.address}/32"}}
    return {**VALUES, "networkPolicy": {"metricsFrom": [api_server]}}
