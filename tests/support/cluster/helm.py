"""Runs Helm for the release `penstock` on a local cluster."""

import asyncio
import os
import subprocess
from pathlib import Path

from tests.support.tools.chart_tools import ensure_helm

from penstock.chart.names import NAMESPACE
from penstock.local.cluster import Cluster

CHART = Path(__file__).parents[3] / "charts" / "penstock"


class Release:
    """Commands of Helm for one release, with Helm's folders inside that of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._helm = ensure_helm(print)
        self._environment = os.environ | {
            "KUBECONFIG": str(cluster.kubeconfig),
            **{f"HELM_{each}_HOME": str(cluster.folder / "helm") for each in ("CACHE", "CONFIG", "DATA")},
        }  # fmt: skip

    async def __call__(self, command: str, *arguments: str | Path) -> str:
        """Run a command, and wait until its objects are ready. Raises AssertionError with what Helm says."""
        process = await asyncio.create_subprocess_exec(
            self._helm, command, "penstock", *arguments, "--namespace", NAMESPACE,
            "--wait", "--timeout=180s",
            env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        return out.decode()
