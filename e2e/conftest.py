"""Fixtures: Penstock on a real cluster, shared by all scenarios.

Each folder uses model names of its own. The namespace of a scenario may be deleted while the next one runs,
and until then its older services and adapters have their short names in all namespaces.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.clients.kubernetes.client import connect
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage
from penstock.local import cluster as clusters
from penstock.local.cluster import Cluster
from penstock.local.install import install

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def models() -> Path:
    """The demo's model, from the cache if it is there."""
    return ensure_model(ROOT / "docs")


@pytest.fixture(scope="session")
def penstock_cluster() -> Iterator[Cluster]:
    gpus = {"nvidia.com/gpu": "2"}
    with clusters.temporary("e2e", say=lambda _: None, allocatable=gpus) as made:
        asyncio.run(install(made, say=lambda _: None))
        yield made


@pytest.fixture
async def stage(penstock_cluster: Cluster, models: Path) -> AsyncIterator[Stage]:
    async with await connect(penstock_cluster.kubeconfig) as kube:
        made = Stage(penstock_cluster, kube)
        made.mount_models(models)
        try:
            yield made
        finally:
            made.kubectl("delete", "psvc", "--all", "--ignore-not-found")
            await made.close()
