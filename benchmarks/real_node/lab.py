"""The cluster with real nodes on which the scenarios run, with the chart installed by Helm."""

import asyncio
import json
import os
import secrets
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.tools.chart_tools import ensure_helm

from penstock.chart.names import GATEWAY, NAMESPACE, OPERATOR
from penstock.clients.kubernetes.client import Kube, connect
from penstock.demo.kubectl import Kubectl
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage
from penstock.local import cluster as clusters
from penstock.local import processes
from penstock.local.cluster import Cluster
from penstock.local.install import gateway_service
from penstock.local.kubelet.images import IMAGE
from penstock.local.kubelet.nodes import load_built_images
from penstock.local.kubelet.tools import CONTAINERD
from penstock.local.versions import KUBERNETES

ROOT = Path(__file__).parents[2]
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
NUM_NODES = 2
VALUES = {"image": {"repository": IMAGE}}
# An engine computes in one thread here: three engines of a canary fit on nodes with two cores.
ENGINE_RESOURCES = {"requests": {"cpu": "100m"}, "limits": {"cpu": 1, "memory": "1Gi"}}
CHART = ROOT / "charts" / "penstock"


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

    async def helm(self, *arguments: str | Path) -> None:
        """Run Helm for the release's namespace, and wait. Raises CalledProcessError."""
        await asyncio.to_thread(_helm, self.cluster, *arguments)


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
    return {
        "processes": len(processes.find(cluster.cluster_id)),
        "interfaces": _lines("ip", "-brief", "link").count(f"penstock-{cluster.network}"),
        "network namespaces": _lines("ip", "netns").count(f"penstock-{cluster.network}-"),
        "mounts": _lines("cat", "/proc/mounts").count(str(cluster.folder)),
        "control groups": len(list(Path("/sys/fs/cgroup").rglob(f"penstock-{cluster.cluster_id}"))),
        "folders": int(cluster.folder.exists()),
    }


def _lines(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


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
    await lab.helm("install", "penstock", CHART, f"--values={values}")
    lab.stage.apply(gateway_service(lab.cluster))
    restarts = json.loads(lab.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    return {
        f"{name} pods": sum(pod["metadata"]["name"].startswith(name) for pod in restarts)
        for name in (OPERATOR, GATEWAY)
    }


def chart_values(cluster: Cluster) -> dict[str, Any]:
    """Values that the chart needs on every cluster whose nodes enforce NetworkPolicies.

    `kubectl penstock explain` reads from the operator through the API server.
    """
    api_server = {"ipBlock": {"cidr": f"{cluster.address}/32"}}
    return {**VALUES, "networkPolicy": {"metricsFrom": [api_server]}}


def _helm(cluster: Cluster, *arguments: str | Path) -> None:
    environment = os.environ | {
        "KUBECONFIG": str(cluster.kubeconfig),
        **{f"HELM_{each}_HOME": str(cluster.folder / "helm") for each in ("CACHE", "CONFIG", "DATA")},
    }  # fmt: skip
    helm = ensure_helm(print)
    subprocess.run(
        [helm, *arguments, f"--namespace={NAMESPACE}", "--wait", "--timeout=180s"],
        env=environment, check=True,
    )  # fmt: skip
