"""A cluster of its own with Penstock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.clients.kubernetes.client import connect
from penstock.demo.stage import Stage
from penstock.local import cluster as clusters
from penstock.local.install import install


@asynccontextmanager
async def temporary_stage(name: str, models: Path) -> AsyncIterator[Stage]:
    """A temporary cluster with an operator, a gateway, and the claim `models` on a folder."""
    with clusters.temporary(name, say=print) as cluster:
        await install(cluster, say=print)
        async with await connect(cluster.kubeconfig) as kube:
            stage = Stage(cluster, kube)
            stage.mount_models(models)
            try:
                yield stage
            finally:
                await stage.close()
