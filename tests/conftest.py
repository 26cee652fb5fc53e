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
# Workers share the machine, and threads that wait for each other's cores spin: a model trained by
# two of them took four times the processor's time. Before torch and numpy are imported.
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
# Started first, the longest before others, so that no worker ends a minute after the rest. Groups that
# mostly wait take turns with groups that mostly compute.
LONGEST = (
    "e2e",
    "tests/engine_model",
    "e2e/documentation",
    "tests/engine_server",
    "tests/controller",
    "tests/local",
    "tests/engine_structured",
    "tests/prometheus",
    "tests/gateway",
    "tests/sim",
    "tests/engine_clients",
    "tests/core_sizing",
)
# They share the cluster that Penstock runs in.
SCENARIOS = "e2e"


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """One worker runs a group of tests, so what they share, engines or a cluster, is started once."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByGroup | None:
    """Groups replace the scopes of --dist loadscope; other modes stay as xdist has them (None)."""
    return ByGroup(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups: dict[str, list[pytest.Item]] = {name: [] for name in LONGEST}
    for item in items:
        groups.setdefault(group(item.nodeid), []).append(item)
    items[:] = [item for tests in groups.values() for item in tests]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def group(nodeid: str) -> str:
    """The first two folders of a test, such as tests/gateway; "e2e" for scenarios on one cluster."""
    folder = "/".join(nodeid.split("::")[0].split("/")[:2])
    is_scenario = folder.startswith(f"{SCENARIOS}/") and folder != "e2e/documentation"
    return SCENARIOS if is_scenario else folder


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
