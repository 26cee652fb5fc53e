"""Services in namespaces with quotas and limit ranges, at a real API server."""

from typing import Any

import pytest

from penstock.clients.kubernetes.resources import PODS, RESOURCE_QUOTAS, Resource
from penstock.core.spec.service import ROLE_LABEL

pytestmark = pytest.mark.cluster

LIMIT_RANGES = Resource("v1", "limitranges")
ENGINE = {"limits": {"cpu": "1", "memory": "1Gi"}}
TWO_ENGINES = {"resources": ENGINE, "scaling": {"mode": "External"}, "replicas": 2}


async def limit(stand: Any, **hard: str) -> None:
    """Create a quota, and wait until the API server enforces it."""
    body = {"metadata": {"name": "limited"}, "spec": {"hard": hard}}
    await stand.kube.create(RESOURCE_QUOTAS, stand.namespace, body)

    async def is_enforced() -> bool:
        quota = await stand.kube.get(RESOURCE_QUOTAS, stand.namespace, "limited")
        return bool(quota["status"].get("hard") == hard)

    await stand.until(is_enforced)


async def start_two_engines(stand: Any, rolling: dict[str, int]) -> str:
    """Create a service with two ready engines. Returns its revision."""
    await stand.create(**TWO_ENGINES, rollout={"rolling": rolling})

    async def are_ready() -> bool:
        return bool((await stand.status()).get("readyReplicas") == 2)

    await stand.until(are_ready)
    revision: str = (await stand.status())["stableRevision"]
    return revision


async def preflight_resources(stand: Any) -> dict[str, Any]:
    found, _ = await stand.kube.list(PODS, stand.namespace, labelSelector=f"{ROLE_LABEL}=preflight")
    (pod,) = found
    resources: dict[str, Any] = pod["spec"]["containers"][0]["resources"]
    return resources


async def test_the_preflight_has_all_limits_that_a_quota_counts(stand: Any) -> None:
    await limit(stand, **{"limits.cpu": "8", "limits.memory": "64Gi"})
    await stand.create(resources=ENGINE)
    await stand.until_phase("Stable")
    assert (await preflight_resources(stand))["limits"] == {"cpu": "1", "memory": "1Gi"}


async def test_the_preflight_is_as_large_as_an_engine_where_a_smaller_pod_is_forbidden(
    stand: Any,
) -> None:
    body = {
        "metadata": {"name": "large"},
        "spec": {"limits": [{"type": "Container", "min": {"memory": "512Mi"}}]},
    }
    await stand.kube.create(LIMIT_RANGES, stand.namespace, body)
    await stand.create(resources=ENGINE)
    await stand.until_phase("Stable")
    assert await preflight_resources(stand) == ENGINE | {"requests": ENGINE["limits"]}


async def test_a_rolling_update_in_a_full_quota_removes_an_old_pod_first(stand: Any) -> None:
    """The quota has room for the preflight, but not for a third engine."""
    await limit(stand, **{"requests.cpu": "2100m"})
    old = await start_two_engines(stand, {"maxSurge": 1, "maxUnavailable": 1})
    await stand.change(engine={"maxNumSeqs": 3})

    async def is_replaced() -> bool:
        status = await stand.status()
        return bool(status["rollout"]["phase"] == "Stable" and status["stableRevision"] != old)

    await stand.until(is_replaced)


async def test_a_rollout_that_waits_for_a_quota_says_so_and_is_not_stalled(stand: Any) -> None:
    await limit(stand, **{"requests.cpu": "2100m"})
    await start_two_engines(stand, {"maxSurge": 1, "maxUnavailable": 0})
    await stand.change(engine={"maxNumSeqs": 3})

    async def says_so() -> bool:
        conditions = {c["type"]: c for c in (await stand.status())["conditions"]}
        assert conditions["Stalled"]["status"] == "False"
        return "exceeded quota: limited" in conditions["Reconciling"]["message"]

    await stand.until(says_so)
