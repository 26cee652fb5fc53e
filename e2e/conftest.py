"""Fixtures: Penstock on a real cluster, shared by all scenarios.

Each folder uses model names of its own. The namespace of a scenario may be deleted while the next one runs,
and until then its older services and adapters have their short names in all namespaces.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.engine.forked_command import forked_engine_command

from penstock.clients.kubernetes.client import connect
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage
from penstock.local import cluster as clusters
from penstock.local.cluster import Cluster
from penstock.local.install import install
from penstock.local.node.container import COMMANDS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def models() -> Path:
    """The demo's model, from the cache if it is there."""
    return ensure_model(ROOT / "docs")


@pytest.fixture(scope="session")
def penstock_cluster() -> Iterator[Cluster]:
    """A cluster whose engines start by fork. Those of pages and of the chart's tests start as a pod's do."""
    gpus = {"nvidia.com/gpu": "2"}
    with forked_engine_command() as commands, ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(COMMANDS, str(commands))
            up = clusters.temporary("e2e", say=lambda _: None, allocatable=gpus)
            made = stack.enter_context(up)
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
