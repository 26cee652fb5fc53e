"""Snapshots that follow a real API server."""

import asyncio
import contextlib
import copy
import time

import pytest

from penstock.clients.kubernetes.resources import (
    INFERENCE_SERVICES,
    LORA_ADAPTERS,
    MODEL_ROUTES,
    PODS,
)
from penstock.core.adapters.demand import AdapterDemand
from penstock.core.routing.pick import Side
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Route, Unknown
from penstock.gateway.snapshots.store import SnapshotStore

pytestmark = pytest.mark.cluster

LABELS = {
    "serving.penstock.dev/service": "chat",
    "serving.penstock.dev/revision": "r1",
    "serving.penstock.dev/role": "serve",
}
SERVICE = {
    "apiVersion": "serving.penstock.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat"},
    "spec": {"model": {"uri": "file:///models/none"}},
}
ROUTE = {
    "apiVersion": "serving.penstock.dev/v1alpha1",
    "kind": "ModelRoute",
    "metadata": {"name": "any"},
    "spec": {
        "modelName": "chat-any",
        "rules": [{"name": "all", "backendRefs": [{"name": "chat"}]}],
    },
}
ADAPTER = {
    "apiVersion": "serving.penstock.dev/v1alpha1",
    "kind": "LoraAdapter",
    "metadata": {"name": "sql"},
    "spec": {
        "serviceRef": {"name": "chat"},
        "model": {"uri": "file:///models/sql", "name": "chat-sql"},
    },
}
# Bound to a node that does not exist: no agent runs it, and its status is ours to write.
POD = {
    "metadata": {"name": "chat-0", "labels": LABELS},
    "spec": {
        "nodeName": "nowhere",
        "automountServiceAccountToken": False,
        "containers": [
            {"name": "engine", "image": "x", "ports": [{"name": "http", "containerPort": 8000}]}
        ],
    },
}


def pod_status(ready, ip="127.0.0.9"):
    conditions = [{"type": "Ready", "status": ready}]
    return {"status": {"phase": "Running", "podIP": ip, "conditions": conditions}}


def pod_of(engine):
    """The pod of an engine that listens."""
    pod = copy.deepcopy(POD)
    pod["metadata"] |= {
        "name": engine.name,
        "labels": LABELS | {"serving.penstock.dev/revision": engine.revision},
    }
    pod["spec"]["containers"][0]["ports"][0]["containerPort"] = engine.port
    return pod


async def ask_on(front):
    while True:
        assert (await front.ask(stream=False))[0] == 200


async def test_two_gateways_follow_new_weights(
    kube, namespace, start_engine, start_gateway, until, capsys
):
    """Each gets requests in sequence while the traffic is switched forth and back."""
    served = []

    def serving(revision):
        async def behave(request):
            served.append((time.monotonic(), revision))
            await request.whole(b"{}")

        return behave

    async def give(kube, revision):
        traffic = {
            "status": {"traffic": [{"revision": revision, "cohort": "Primary", "percent": 100}]}
        }
        await kube.merge(
            INFERENCE_SERVICES, namespace, "chat", traffic, manager="test", sub="status"
        )

    await kube.create(INFERENCE_SERVICES, namespace, copy.deepcopy(SERVICE))
    for revision in ("r1", "r2"):
        engine = await start_engine(serving(revision), revision)
        await kube.create(PODS, namespace, pod_of(engine))
        status = pod_status("True", "127.0.0.1")
        await kube.merge(PODS, namespace, engine.name, status, manager="test", sub="status")
    await give(kube, "r1")
    fronts = [await start_gateway(synced=False) for _ in range(2)]
    tasks = [
        asyncio.create_task(work)
        for front in fronts
        for work in (front.snapshots.follow(kube, namespace), ask_on(front))
    ]
    elapsed_s = []
    try:
        await until(lambda: len(served) > 50)
        for revision in ("r2", "r1"):
            patched_s = time.monotonic()
            await give(kube, revision)
            await until(lambda to=revision: {r for _, r in served[-100:]} == {to})
            elapsed_s.append(max(at_s for at_s, r in served if r != revision) - patched_s)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    with capsys.disabled():
        told = " and ".join(f"{1000 * each_s:.0f} ms" for each_s in elapsed_s)
        print(f"\nfrom the patch to the last request on the old side: {told}")


async def test_snapshot_follows_pods_and_traffic(kube, namespace, monkeypatch):
    monkeypatch.setattr("penstock.gateway.snapshots.store.DEMAND_DELAY_S", 0.1)
    snapshots, changed = SnapshotStore(), asyncio.Event()
    snapshots.listeners.append(lambda _: changed.set())
    following = asyncio.create_task(snapshots.follow(kube, namespace))

    async def until(condition):
        async with asyncio.timeout(20):
            while not condition():
                with contextlib.suppress(TimeoutError):  # changed demand alone calls no listener
                    await asyncio.wait_for(changed.wait(), 0.1)
                changed.clear()

    def addresses():
        service = snapshots.current.get(f"{namespace}/chat")
        return None if service is None else [e.address for e in service.endpoints]

    try:
        await until(lambda: snapshots.is_synced)
        assert snapshots.current.services == ()
        await kube.create(INFERENCE_SERVICES, namespace, copy.deepcopy(SERVICE))
        await until(lambda: addresses() == [])
        traffic = {"status": {"traffic": [{"revision": "r1", "cohort": "Primary", "percent": 100}]}}
        await kube.merge(
            INFERENCE_SERVICES, namespace, "chat", traffic, manager="test", sub="status"
        )
        await until(lambda: snapshots.current.services[0].weights == {Side("r1"): 100})
        await kube.create(PODS, namespace, copy.deepcopy(POD))
        for ready, expected in [
            ("True", ["127.0.0.9:8000"]),
            ("False", []),
            ("True", ["127.0.0.9:8000"]),
        ]:
            await kube.merge(
                PODS, namespace, "chat-0", pod_status(ready), manager="test", sub="status"
            )
            await until(lambda expected=expected: addresses() == expected)
        await kube.delete(PODS, namespace, "chat-0", grace_s=30)
        await until(lambda: addresses() == [])  # terminating is enough
        route = copy.deepcopy(ROUTE)
        await kube.create(MODEL_ROUTES, namespace, route)
        await until(lambda: isinstance(snapshots.current.resolve("chat-any"), Route))
        await kube.delete(MODEL_ROUTES, namespace, "any")
        await until(lambda: snapshots.current.resolve("chat-any") == Unknown())
        await kube.create(LORA_ADAPTERS, namespace, copy.deepcopy(ADAPTER))
        await until(lambda: isinstance(snapshots.current.resolve("chat-sql"), Adapter))
        before = snapshots.current
        status = {"status": {"loadedReplicas": 1}}
        await kube.merge(LORA_ADAPTERS, namespace, "sql", status, manager="test", sub="status")
        await asyncio.sleep(0.5)
        assert snapshots.current is before
        status = {"status": {"demand": {"requestsPerSecond": "2.5"}}}
        await kube.merge(LORA_ADAPTERS, namespace, "sql", status, manager="test", sub="status")
        demand = {before.adapters[0].engine_name: AdapterDemand(2.5)}
        await until(lambda: snapshots.current.adapter_demand(f"{namespace}/chat") == demand)
        assert snapshots.current == before
        await kube.delete(LORA_ADAPTERS, namespace, "sql")
        await until(lambda: snapshots.current.resolve("chat-sql") == Unknown())
        await kube.delete(INFERENCE_SERVICES, namespace, "chat")
        await until(lambda: addresses() is None)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await kube.delete(PODS, namespace, "chat-0", grace_s=0)
