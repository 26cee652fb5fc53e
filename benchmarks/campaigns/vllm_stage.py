"""A cluster of its own with Penstock, whose pods find the program `vllm`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from campaigns.vllm_install import ensure_vllm

from penstock.clients.kube import connect
from penstock.demo.stage import Stage
from penstock.local import cluster as clusters
from penstock.local.install import install


def find_vllm(python: str) -> None:
    """Add the folder of the program to PATH. vLLM is installed in the cache on first use."""
    os.environ["PATH"] += f":{ensure_vllm(python)}"


@asynccontextmanager
async def temporary_stage(models: Path) -> AsyncIterator[Stage]:
    """A temporary cluster with an operator, a gateway, and the claim `models` on a folder."""
    with clusters.temporary("vllm", say=print) as cluster:
        await install(cluster, say=print)
        async with await connect(cluster.kubeconfig) as kube:
            stage = Stage(cluster, kube)
            stage.mount_models(models)
            try:
                yield stage
            finally:
                await stage.close()
