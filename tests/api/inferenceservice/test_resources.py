"""spec.resources accepts and refuses what a container's resources would, on a real API server."""

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.api.inferenceservice.kind import KIND
from penstock.api.inferenceservice.resources import Resources
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES, PODS, Resource
from penstock.core.spec.service import API_VERSION
from penstock.errors import KubeError

GPU, HUGE = "nvidia.com/gpu", "hugepages-2Mi"

GOOD: list[dict[str, Any]] = [
    {"limits": {GPU: "3.00000"}},
    {"limits": {GPU: 1, "rdma/hca": "1e19"}},
    {},
    {"limits": {}},
    {"limits": {"cpu": 2, "memory": "4Gi", GPU: 1}},
    {"limits": {"cpu": "500m", "memory": "2e9", "ephemeral-storage": "10Gi"}},
    {"limits": {"cpu": "0"}},
    {"limits": {GPU: "0"}},
    {"limits": {GPU: "2000m"}},
    {"limits": {GPU: 4, "rdma/hca": "1k"}},
    {"limits": {"nvidia.com/mig-1g.10gb": 1}},
    {"limits": {"amd.com/gpu": 8}},
    {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": 4, "memory": "1Gi"}},
    {"requests": {"cpu": "1", "memory": "1Gi"}},
    {"requests": {GPU: 2}, "limits": {GPU: "2"}},
    {"requests": {"cpu": "1500m"}, "limits": {"cpu": "1.5"}},
    {"limits": {"cpu": 1, HUGE: "4Mi"}, "requests": {HUGE: "4Mi"}},
    {"claims": [{"name": "gpu"}]},
]
BAD: list[dict[str, Any]] = [
    {"limits": {GPU: "1.0000000000000000001"}},
    {"limits": {GPU: "1e-999"}},
    {"limits": {"cpu": "9007199254740992"}, "requests": {"cpu": "9007199254740993"}},
    {"limits": {"gpu": 1}},
    {"limits": {"Nvidia.com/gpu": 1}},
    {"limits": {"nvidia.com/": 1}},
    {"limits": {"requests.nvidia.com/gpu": 1}},
    {"limits": {GPU: "1.5"}},
    {"limits": {GPU: -1}},
    {"limits": {"cpu": "-1"}},
    {"limits": {"cpu": "two"}},
    {"limits": {"cpu": True}},
    {"limits": {"cpu": []}},
    {"limits": {"memory": "2GB"}},
    {"requests": {GPU: 1}},
    {"requests": {GPU: 1}, "limits": {GPU: 2}},
    {"requests": {HUGE: "4Mi"}},
    {"requests": {"cpu": 2}, "limits": {"cpu": "1999m"}},
    {"requests": {"memory": "3Gi"}, "limits": {"memory": "2Gi"}},
    {"claims": [{"name": "gpu"}, {"name": "gpu"}]},
    {"claims": [{}]},
    {"claims": ["gpu"]},
]
# Resources that a pod may have and Penstock refuses.
NOT_FOR_ENGINES: list[dict[str, Any]] = [
    {"limits": {"memory": "512Mi"}},
    {"requests": {"memory": "512Mi"}},
    {"limits": {"a.example/gpu": 1, "b.example/gpu": 1}},
    {"limits": {GPU: 1, "nvidia.com/mig-1g.10gb": 1}},
    {"limits": {GPU: 65}},
]


async def is_accepted(kube: Kube, resource: Resource, body: dict[str, Any]) -> bool:
    try:
        await kube.create(resource, "default", body, dryRun="All", fieldValidation="Strict")
    except KubeError:
        return False
    return True


async def pod_may_have(kube: Kube, resources: dict[str, Any]) -> bool:
    claim = {"name": "gpu", "resourceClaimName": "some"}
    spec = {
        "containers": [{"name": "engine", "image": "x", "resources": resources}],
        "resourceClaims": [claim] if "claims" in resources else [],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    return await is_accepted(kube, PODS, body)


async def service_may_have(kube: Kube, resources: dict[str, Any]) -> bool:
    spec = {"model": {"uri": "pvc://models"}, "resources": resources}
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "x"}, "spec": spec}
    return await is_accepted(kube, INFERENCE_SERVICES, body)


def pydantic_accepts(resources: dict[str, Any]) -> bool:
    try:
        Resources.model_validate(resources)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("resources", GOOD)
def test_valid_resources_are_accepted(resources: dict[str, Any]) -> None:
    assert pydantic_accepts(resources)


@pytest.mark.parametrize("resources", [*BAD, *NOT_FOR_ENGINES])
def test_invalid_resources_are_refused(resources: dict[str, Any]) -> None:
    assert not pydantic_accepts(resources)


@pytest.mark.cluster
async def test_resources_are_those_of_pods(kube: Kube) -> None:
    cases = [*((r, True) for r in GOOD), *((r, False) for r in BAD)]
    wrong = [
        (resources, is_good, pod, service)
        for resources, is_good in cases
        if {
            pod := await pod_may_have(kube, resources),
            service := await service_may_have(kube, resources),
        }
        != {is_good}
    ]
    assert wrong == []


@pytest.mark.cluster
async def test_the_api_server_refuses_an_unknown_field(kube: Kube) -> None:
    """The operator ignores such a field, because the CRD may be newer."""
    assert not await service_may_have(kube, {"cpu": "2"})


@pytest.mark.cluster
async def test_an_engine_needs_more_than_a_pod(kube: Kube) -> None:
    for resources in NOT_FOR_ENGINES:
        assert await pod_may_have(kube, resources), resources
        assert not await service_may_have(kube, resources), resources
