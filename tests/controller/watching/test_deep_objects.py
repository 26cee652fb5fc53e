"""An object that is nested as deeply as the API server accepts hides no other one."""

import asyncio
import copy
import sys

import kopf
import pytest

from penstock.clients.kubernetes.client import load_configuration
from penstock.clients.kubernetes.deep_objects import allow_deep_objects
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.controller.watching import kopf_watch
from penstock.gateway.snapshots.store import SnapshotStore

pytestmark = pytest.mark.cluster

SERVICE = {
    "apiVersion": "serving.penstock.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat"},
    "spec": {"model": {"uri": "file:///models/none"}},
}
LEVELS = 9_000


@pytest.fixture
def deep_objects_allowed():
    """The limit of the process, as at the start of each command."""
    limit = sys.getrecursionlimit()
    allow_deep_objects()
    yield
    sys.setrecursionlimit(limit)


@pytest.fixture
async def services(kube, namespace, deep_objects_allowed):
    """One deep service, which any user may create who may create one, and a usual one."""
    deep = copy.deepcopy(SERVICE)
    deep["metadata"]["name"] = "deep"
    inner = deep["spec"]["template"] = {}
    for _ in range(LEVELS):
        inner["a"] = inner = {}
    await kube.create(INFERENCE_SERVICES, namespace, deep)
    await kube.create(INFERENCE_SERVICES, namespace, copy.deepcopy(SERVICE))
    yield {f"{namespace}/chat", f"{namespace}/deep"}
    await kube.delete(INFERENCE_SERVICES, namespace, "deep")


async def test_a_gateway_follows_all_services(kube, namespace, services):
    snapshots = SnapshotStore()
    following = asyncio.create_task(snapshots.follow(kube, namespace))
    try:
        assert await snapshots.wait_for_first(20.0)
        assert {each.key for each in snapshots.current.services} == services
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_the_operator_watches_all_services(cluster, namespace, services):
    found, is_complete = set(), asyncio.Event()

    def changed(key, body, is_gone):
        found.add("/".join(key))
        if found == services:
            is_complete.set()

    configuration = await load_configuration(cluster.kubeconfig)
    ours = asyncio.all_tasks()
    tasks = await kopf_watch.start(configuration, namespace, changed)
    running = asyncio.create_task(kopf.run_tasks(tasks, ignored=ours))
    try:
        async with asyncio.timeout(20):
            await is_complete.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
