"""The scale subresource: a HorizontalPodAutoscaler sets the replicas of a service in mode External."""

import asyncio

import pytest
from tests.controller.scaling.metrics_api import GROUP_VERSION, MetricsApi, labels_of

from penstock.clients.kubernetes.resources import Resource
from penstock.errors import NotFound

pytestmark = pytest.mark.cluster

AUTOSCALERS = Resource("autoscaling/v2", "horizontalpodautoscalers")
API_SERVICES = Resource("apiregistration.k8s.io/v1", "apiservices", namespaced=False)
SERVICES = Resource("v1", "services")
GROUP, VERSION = GROUP_VERSION.split("/")
API_NAME = f"{VERSION}.{GROUP}"


@pytest.fixture
async def metrics_api(kube, namespace, tmp_path):
    """A metrics API that the API server forwards to, by a Service that is an external name."""
    with MetricsApi(tmp_path) as api:
        service = {
            "metadata": {"name": "metrics"},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
        }
        await kube.create(SERVICES, namespace, service)
        spec = {
            "group": GROUP, "version": VERSION, "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"namespace": namespace, "name": "metrics", "port": api.port},
        }  # fmt: skip
        await kube.create(API_SERVICES, None, {"metadata": {"name": API_NAME}, "spec": spec})
        yield api
        # Before its server ends: a group that does not answer delays the end of every namespace.
        await kube.delete(API_SERVICES, None, API_NAME)
        for _ in range(100):
            try:
                await kube.get(API_SERVICES, None, API_NAME)
            except NotFound:
                break
            await asyncio.sleep(0.1)


def autoscaler():
    """An autoscaler with a replica for each GiB that the pods use, between 1 and 4."""
    target = {"type": "AverageValue", "averageValue": "1Gi"}
    return {
        "metadata": {"name": "chat"},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "serving.penstock.dev/v1alpha1", "kind": "InferenceService",
                "name": "chat",
            },
            "minReplicas": 1, "maxReplicas": 4,
            "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": target}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }  # fmt: skip


async def reach(stand, api, replicas):
    """Reconcile until the autoscaler has set the replicas, and the service has as many ready pods."""
    for _ in range(900):
        await stand.step()
        for pod in await stand.pods():
            await stand._bring_up(pod)
        status = await stand.status()
        names = [
            pod["metadata"]["name"]
            for pod in await stand.pods()
            if pod["metadata"]["labels"].get("serving.penstock.dev/role") == "serve"
            and "deletionTimestamp" not in pod["metadata"]
        ]
        api.pods = {labels_of(status["selector"]): names}
        wanted = (await stand.body())["spec"]["replicas"]
        if wanted == status["readyReplicas"] == status["replicas"] == len(names) == replicas:
            return
        await asyncio.sleep(0.1)
    raise AssertionError((await stand.kube.get(AUTOSCALERS, stand.namespace, "chat"))["status"])


@pytest.mark.timeout(300)
async def test_an_autoscaler_moves_an_external_service(stand, metrics_api):
    await stand.create(scaling={"mode": "External"}, replicas=1)
    await stand.until_phase("Stable")
    await stand.kube.create(AUTOSCALERS, stand.namespace, autoscaler())

    metrics_api.total_mib = 2500
    await reach(stand, metrics_api, 3)
    metrics_api.total_mib = 700
    await reach(stand, metrics_api, 1)
    assert metrics_api.selectors == {labels_of((await stand.status())["selector"])}
