"""Gateways that count each other, with pods of a real API server."""

import asyncio
import contextlib

import pytest

from penstock.chart.names import GATEWAY
from penstock.clients.kubernetes.resources import PODS
from penstock.gateway.quotas.peers import GatewayPeers

pytestmark = pytest.mark.cluster


def status(ready):
    """The status of a running pod."""
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-30T00:00:00Z"}
    return {"status": {"conditions": [condition], "phase": "Running"}}


async def create_pod(kube, namespace, name, *, label=GATEWAY):
    """Create a pod that is ready. No node runs it, so its status stays as it is written here."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": label}},
        "spec": {
            "schedulerName": "none",
            "containers": [{"name": "gateway", "image": "gateway"}],
        },
    }
    await kube.create(PODS, namespace, body)
    await kube.merge(PODS, namespace, name, status("True"), sub="status", manager="test")


async def test_the_ready_gateways_of_the_namespace_are_counted(kube, namespace):
    async def until(count):
        async with asyncio.timeout(20):
            while peers.count != count:  # noqa: ASYNC110 - polls a watch
                await asyncio.sleep(0.02)

    peers = GatewayPeers()
    following = asyncio.create_task(peers.follow(kube, namespace))
    try:
        for name in ("a", "b", "c"):
            await create_pod(kube, namespace, name)
        await create_pod(kube, namespace, "other", label="another")
        await until(3)
        await kube.merge(PODS, namespace, "a", status("False"), sub="status", manager="test")
        await until(2)
        for name in ("b", "c"):
            await kube.delete(PODS, namespace, name, grace_s=0)
        await until(1)
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
