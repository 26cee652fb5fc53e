"""Fixtures: a real cluster, shared by a worker's tests, with a namespace for each test; test order."""

import asyncio
import gc
import logging
import os
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.full_run.group_times import GroupTimes, ProcessorTimes
from tests.full_run.groups import ByGroup, group, in_order
from tests.full_run.rerun_alone import RerunAlone
from tests.full_run.tools import Tools
from tests.support.cluster.crds import install_crds
from xdist.remote import Producer

from penstock.clients.kubernetes.client import Kube, Object, connect
from penstock.clients.kubernetes.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    LORA_ADAPTERS,
    MODEL_ROUTES,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    Resource,
)
from penstock.errors import KubeError, Transient
from penstock.local import cluster as clusters
from penstock.local.cluster import Cluster
from penstock_engine.telemetry.logs import RepeatLimit

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "out" / "tests"  # what a full run writes about itself
# A single thread per worker: spinning threads of two workers made training take four times the CPU time.
# Must be set before torch and numpy are imported.
os.environ |= {
    "OMP_NUM_THREADS": "1",
    "PENSTOCK_CPU_LIMIT": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    # For control planes: with Go's defaults a fifth of their processor time went into collecting garbage.
    "GOGC": "300",
}
# No deadline: other work on the machine can slow any example down.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# For an inner loop, which `make test` follows.
settings.register_profile("check", settings.get_profile("any machine"), max_examples=20)
settings.load_profile("any machine")
# Imported objects stay alive: collecting takes a third of the start-up time.
gc.disable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByGroup | None:
    """Replace the scheduler of --dist loadscope; None keeps xdist's for other modes."""
    return ByGroup(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(ProcessorTimes(config, group))
    elif config.getoption("dist") == "loadscope":
        config.pluginmanager.register(GroupTimes(RESULTS / "times.txt", group))
        config.pluginmanager.register(RerunAlone(ROOT, RESULTS / "flaky.txt"))
        config.pluginmanager.register(Tools())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = in_order(items)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


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


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Undoes the logging of a command that a test runs in this process.

    Its handler would write to a closed stream, and count the repeated warnings of later tests.
    """
    root = logging.getLogger()
    level, hook = root.level, sys.excepthook
    yield
    for handler in root.handlers[:]:
        if any(isinstance(each, RepeatLimit) for each in handler.filters):
            root.removeHandler(handler)
    root.setLevel(level)
    sys.excepthook = hook


@pytest.fixture
async def kube(cluster: Cluster) -> AsyncIterator[Kube]:
    async with await connect(cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def new_namespace(kube: Kube) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """Function that creates a namespace, in which pods can be created at once."""
    made = []

    async def create() -> str:
        name = f"t-{secrets.token_hex(4)}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await kube.create(NAMESPACES, None, body)
        made.append(name)
        # Pods are refused until the namespace has its ServiceAccount, and mount this ConfigMap.
        for resource, needed in (
            (SERVICE_ACCOUNTS, "default"),
            (CONFIG_MAPS, "kube-root-ca.crt"),
        ):
            for _ in range(100):
                try:
                    await kube.get(resource, name, needed)
                    break
                except KubeError:
                    await asyncio.sleep(0.1)
        return name

    yield create
    for name in made:
        await _empty(kube, name)


async def _empty(kube: Kube, namespace: str) -> None:
    """Delete what has processes or is read in all namespaces; what it owns goes with it.

    The namespace itself stays: its deletion is seventy requests, more than most tests send.
    """
    for resource in (INFERENCE_SERVICES, LORA_ADAPTERS, MODEL_ROUTES, DEPLOYMENTS, PODS):
        for body in await _list(kube, resource, namespace):
            if not body["metadata"].get("ownerReferences"):
                await kube.delete(resource, namespace, body["metadata"]["name"])


async def _list(kube: Kube, resource: Resource, namespace: str) -> list[Object]:
    """List objects. For a while after a change of a CRD the API server refuses to."""
    for _ in range(100):
        with suppress(Transient):
            return (await kube.list(resource, namespace))[0]
        await asyncio.sleep(0.1)
    return (await kube.list(resource, namespace))[0]


@pytest.fixture
async def namespace(new_namespace: Callable[[], Awaitable[str]]) -> str:
    """A new namespace for the test."""
    return await new_namespace()
