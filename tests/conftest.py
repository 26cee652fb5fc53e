"""A real cluster for every test that asks for one: one for the whole run, a namespace for each test."""

import asyncio
import gc
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from penstock.clients.kube import Kube, connect
from penstock.clients.resources import NAMESPACES, SERVICE_ACCOUNTS
from penstock.errors import KubeError
from penstock.local import cluster as clusters
from penstock.local.cluster import Cluster
from penstock.local.install import install_crds

ROOT = Path(__file__).parents[1]
# Two workers share the machine, and threads that wait for each other's cores spin: a model trained
# by two of them took four times the processor's time. Before torch and numpy are imported.
os.environ |= {
    "OMP_NUM_THREADS": "1",
    "PENSTOCK_CPU_LIMIT": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
# Other work on the machine makes any example slow.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
# What is imported stays: to look for cycles in it takes a third of the time.
gc.disable()
# Begun first, so that no worker ends a minute after the other: what waits and what computes in turns.
LONGEST = (
    "e2e/objectives",
    "tests/engine_model",
    "e2e/scale_under_load",
    "tests/controller",
    "tests/prometheus",
    "e2e/documentation",
    "e2e/revision_change",
    "tests/engine_server",
    "e2e/quickstart",
    "tests/engine_structured",
    "e2e/rollout_canary",
    "tests/local",
)


class ByRoom(LoadScopeScheduling):  # type: ignore[misc]
    """A room is run by one worker: what its tests share, engines or a cluster, is started once."""

    def _split_scope(self, nodeid: str) -> str:
        return room(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByRoom | None:
    """One folder per worker, as --dist loadscope; other modes stay as xdist has them (None)."""
    return ByRoom(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rooms: dict[str, list[pytest.Item]] = {name: [] for name in LONGEST}
    for item in items:
        rooms.setdefault(room(item.nodeid), []).append(item)
    items[:] = [item for tests in rooms.values() for item in tests]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def room(nodeid: str) -> str:
    """tests/gateway, e2e/quickstart: the first two folders."""
    return "/".join(nodeid.split("::")[0].split("/")[:2])


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A bare cluster with the CRDs: the control plane and the node agent, without Penstock in it."""
    gpus = {"nvidia.com/gpu": "2"}
    with clusters.temporary("test", say=lambda _: None, allocatable=gpus) as made:
        asyncio.run(_apply_crds(made))
        yield made


async def _apply_crds(made: Cluster) -> None:
    async with await connect(made.kubeconfig) as kube:
        await install_crds(kube)


@pytest.fixture
async def kube(cluster: Cluster) -> AsyncIterator[Kube]:
    async with await connect(cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def namespace(kube: Kube) -> AsyncIterator[str]:
    """A namespace of the test's own, in which pods can be made at once."""
    name = f"t-{secrets.token_hex(4)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await kube.create(NAMESPACES, None, body)
    for _ in range(100):  # pods are refused until the namespace has its ServiceAccount
        try:
            await kube.get(SERVICE_ACCOUNTS, name, "default")
            break
        except KubeError:
            await asyncio.sleep(0.1)
    yield name
    await kube.delete(NAMESPACES, None, name)
