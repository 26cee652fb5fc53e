"""Scaling with metrics from Prometheus alone, on a real API server: the engine is unreachable."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager

import pytest

from penstock.clients.kubernetes.resources import INFERENCE_SERVICES, PODS
from penstock.core.spec.service import PREFLIGHT, ROLE_LABEL, SERVE, SERVICE_LABEL
from penstock.demo.stage import poll_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SERVICE = {
    "apiVersion": "serving.penstock.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "far"},
    "spec": {
        "model": {"uri": "pvc://models/soup"},
        "scaling": {"minReplicas": 1, "maxReplicas": 5, "targets": {"queueLength": 4}},
        # No agent of ours runs its pods, and their status is ours to write.
        "template": {"spec": {"schedulerName": "nobody"}},
    },
}
# An address reserved for documentation: unreachable.
ELSEWHERE = "192.0.2.1"


@asynccontextmanager
async def operator(cluster, namespace, port):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", "operator", "run", "--engine-image", "penstock",
        "--host", "127.0.0.1", "--port", "0", "--lease-namespace", namespace,
        "--prometheus-url", f"http://127.0.0.1:{port}",
        env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "POD_NAME": "one"},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def pass_preflight(kube, namespace):
    selector = f"{SERVICE_LABEL}=far,{ROLE_LABEL}={PREFLIGHT}"
    for pod in (await kube.list(PODS, namespace, labelSelector=selector))[0]:
        status = {"status": {"phase": "Succeeded"}}
        await kube.merge(
            PODS, namespace, pod["metadata"]["name"], status, manager="test", sub="status"
        )


async def make_ready(kube, namespace, pod):
    status = {
        "phase": "Running",
        "podIP": ELSEWHERE,
        "podIPs": [{"ip": ELSEWHERE}],
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
    }
    await kube.merge(PODS, namespace, pod, {"status": status}, manager="test", sub="status")


async def test_service_scales_up_for_a_queue_read_from_prometheus(
    cluster, kube, namespace, start_prometheus, port, engine, waiting
):
    async def engines():
        selector = f"{SERVICE_LABEL}=far,{ROLE_LABEL}={SERVE}"
        found, _ = await kube.list(PODS, namespace, labelSelector=selector)
        return [pod["metadata"]["name"] for pod in found]

    async def scaling():
        body = await kube.get(INFERENCE_SERVICES, namespace, "far")
        return body.get("status", {}).get("scaling") or {"desiredReplicas": 0, "message": ""}

    async def is_asked_for():
        await pass_preflight(kube, namespace)
        return len(await engines()) == 1

    async def is_blind():
        return "cannot be queried" in (await scaling())["message"]

    async def has_grown():
        return (await scaling())["desiredReplicas"] > 1 and len(await engines()) > 1

    await kube.create(INFERENCE_SERVICES, namespace, SERVICE)
    async with operator(cluster, namespace, port):
        await poll_until(is_asked_for, within_s=30, what="a pod")
        (pod,) = await engines()
        await make_ready(kube, namespace, pod)
        await poll_until(is_blind, within_s=30, what="a word on an engine that nobody reaches")
        start_prometheus({pod: engine}, namespace, port)
        await poll_until(has_grown, within_s=30, what="more pods")
    said = await scaling()
    # One batch of one runs, and each replica may keep four waiting: 1 + ceil((11 - 4) / (4 + 1)).
    assert said["desiredReplicas"] == 3
    assert f"{waiting} requests wait at engines" in said["message"]
    notes = {entry["step"]: entry["note"] for entry in said["trail"]}
    assert notes["source"].startswith("numbers of 1 of 1 engines are Prometheus', up to ")
    await kube.delete(INFERENCE_SERVICES, namespace, "far")
