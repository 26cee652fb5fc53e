"""A cluster of its own with Penstock."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.clients.kubernetes.client import connect
from penstock.demo.stage import Stage
from penstock.local import cluster as clusters
from penstock.local.install import install


@asynccontextmanager
async def temporary_stage(
    name: str, models: Path | None = None, *,
    values: Mapping[str, Any] = {}, allocatable: Mapping[str, str] = {},
) -> AsyncIterator[Stage]:  # fmt: skip
    """A temporary cluster with an operator, a gateway, and the claim `models` on a folder, if there is one.

    values: of the chart. allocatable: of the node, in addition to CPU and memory.
    """
    with clusters.temporary(name, say=print, allocatable=allocatable) as cluster:
        await install(cluster, say=print, values=values)
        async with await connect(cluster.kubeconfig) as kube:
            stage = Stage(cluster, kube)
            if models is not None:
                stage.mount_models(models)
            try:
                yield stage
            finally:
                await stage.close()
