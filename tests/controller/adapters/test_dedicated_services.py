"""InferenceServices of dedicated pools, at a real API server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.controller.adapters.pool_stand import (
    POOL,
    TO_SHARED,
    patch_service,
    pool_of,
    pool_stand,
    start_pool,
    until_gone,
    until_status,
)
from tests.support.cluster.adapter_stand import SERVICE, AdapterStand

from penstock.cli.rollout import revisions as rollout_revisions
from penstock.cli.rollout.target import Refused, parse_target
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import (
    INFERENCE_SERVICES,
    LORA_ADAPTERS,
    RESOURCE_QUOTAS,
    Resource,
)
from penstock.controller.adapters import dedicated_services
from penstock.errors import Rejected

pytestmark = pytest.mark.cluster


@pytest.fixture
async def stand(kube: Kube, namespace: str) -> AsyncIterator[AdapterStand]:
    async with pool_stand(kube, namespace) as made:
        yield made


async def test_the_pool_follows_the_service_and_the_adapter(stand: AdapterStand) -> None:
    await stand.create("sql", pool="Dedicated", dedicated={"minReplicas": 2, "maxReplicas": 3})
    pool = await pool_of(stand)
    scaling = pool["spec"]["scaling"]
    assert (scaling["minReplicas"], scaling["maxReplicas"]) == (2, 3)
    assert pool["spec"]["engine"]["lora"]["sources"] == ["pvc://adapters"]
    (owner,) = pool["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("LoraAdapter", "sql", True)
    assert pool["metadata"]["labels"]["serving.penstock.dev/service"] == SERVICE
    (managed,) = {each["manager"] for each in pool["metadata"]["managedFields"]}
    assert managed == "penstock-adapters"
    await patch_service(stand, SERVICE, {"spec": {"model": {"uri": "pvc://models/2"}}})
    await pool_of(stand, lambda body: body["spec"]["model"]["uri"] == "pvc://models/2")
    await stand.change("sql", dedicated={"maxReplicas": 5})
    await pool_of(stand, lambda body: body["spec"]["scaling"]["maxReplicas"] == 5)


async def test_edits_of_users_are_reverted(stand: AdapterStand) -> None:
    await stand.create("sql", pool="Dedicated")
    wanted = (await pool_of(stand))["spec"]
    edits: tuple[Object, ...] = (
        {"scaling": {"maxReplicas": 9}},
        {"objectives": {"ttft": "1s"}, "terminationGracePeriodSeconds": 20},
        {"engine": {"lora": {"sources": ["pvc://adapters", "pvc://more"]}}},
    )
    for edit in edits:
        await patch_service(stand, POOL, {"spec": edit})
        await pool_of(stand, lambda body: body["spec"] == wanted)
    await patch_service(
        stand,
        POOL,
        {"metadata": {"labels": {"serving.penstock.dev/adapter": "other", "mine": "1"}}},
    )
    labels = {"serving.penstock.dev/adapter": "sql", "mine": "1"}
    await pool_of(stand, lambda body: body["metadata"]["labels"].items() >= labels.items())


async def test_commands_that_change_a_spec_refuse_a_pool(stand: AdapterStand) -> None:
    await stand.create("sql", pool="Dedicated")
    before = await pool_of(stand)
    target = parse_target(POOL)
    with pytest.raises(Refused, match="has the spec of chat: change that one"):
        await rollout_revisions.restart(stand.kube, stand.namespace, target, watch=False)
    assert (await pool_of(stand))["spec"] == before["spec"]


async def test_a_deleted_pool_is_made_again_and_the_shared_one_serves(stand: AdapterStand) -> None:
    await start_pool(stand)
    uid = (await pool_of(stand))["metadata"]["uid"]
    del stand.pods["chat-sql-a"]
    await stand.kube.delete(INFERENCE_SERVICES, stand.namespace, POOL)
    await pool_of(stand, lambda body: body["metadata"]["uid"] != uid)
    await until_status(stand, pool="Shared", poolGeneration=3)
    await stand.until("sql", PoolReady="EnginesStarting", Ready="Ready", Loaded="AllLoaded")


async def test_a_service_of_that_name_is_left_alone(stand: AdapterStand) -> None:
    await stand.add_engine("chat-a")
    other = stand.service(POOL, engine={})
    del other["metadata"]["uid"], other["metadata"]["creationTimestamp"]
    before = await stand.kube.create(INFERENCE_SERVICES, stand.namespace, other)
    await stand.create("sql", pool="Dedicated", placement={"minReplicas": 1})
    status = await stand.until(
        "sql", PoolReady="ServiceNameInUse", Ready="Ready", Loaded="AllLoaded"
    )
    assert status["pool"] == "Shared"
    await stand.until("sql", Stalled="ServiceNameInUse")
    await stand.until_event("sql", "Warning", "ServiceNameInUse")
    after = await stand.kube.get(INFERENCE_SERVICES, stand.namespace, POOL)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await stand.kube.delete(INFERENCE_SERVICES, stand.namespace, POOL)
    await stand.until("sql", PoolReady="EnginesStarting", Stalled="NotStalled")
    await pool_of(stand)


async def test_a_pool_that_the_api_server_refuses(
    stand: AdapterStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedicated_services, "REFUSED_PAUSE_S", 1.0)
    hard = {"count/inferenceservices.serving.penstock.dev": "1"}
    quota: Object = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "services"},
        "spec": {"hard": hard},
    }  # fmt: skip
    await stand.kube.create(RESOURCE_QUOTAS, stand.namespace, quota)
    await stand.kube.merge(
        RESOURCE_QUOTAS, stand.namespace, "services",
        {"status": {"hard": hard, "used": hard}},
        manager="test", sub="status",
    )  # fmt: skip
    await stand.add_engine("chat-a")
    await stand.create("sql", pool="Dedicated", placement={"minReplicas": 1})
    status = await stand.until("sql", PoolReady="ServiceRefused", Ready="Ready", Loaded="AllLoaded")
    (refused,) = (each for each in status["conditions"] if each["type"] == "PoolReady")
    assert "exceeded quota" in refused["message"]
    await stand.kube.delete(RESOURCE_QUOTAS, stand.namespace, "services")
    await pool_of(stand)


async def test_the_garbage_collector_deletes_the_pool_of_a_deleted_adapter(
    stand: AdapterStand,
) -> None:
    await start_pool(stand)
    await stand.kube.delete(LORA_ADAPTERS, stand.namespace, "sql")
    # The collector looks for new kinds, such as those of these CRDs, every 30 s.
    await until_gone(stand, within_s=60)


async def test_a_new_pool_waits_for_the_rollout_of_the_service(stand: AdapterStand) -> None:
    def status(phase: str, generation: int) -> Object:
        rollout = {"phase": phase, "strategy": "Canary", "replicas": 1, "message": "test"}
        rollout["phaseTransitionTime"] = "2026-01-01T00:00:00Z"
        return {"stableRevision": "a" * 8, "observedGeneration": generation, "rollout": rollout}

    async def write(phase: str, generation: int) -> None:
        await stand.kube.merge(
            INFERENCE_SERVICES, stand.namespace, SERVICE, {"status": status(phase, generation)},
            manager="test", sub="status",
        )  # fmt: skip

    await stand.add_engine("chat-a")
    await write("Rejected", 1)
    await stand.create("sql", pool="Dedicated", placement={"minReplicas": 1})
    found = await stand.until("sql", PoolReady="ServiceRollout", Ready="Ready", Loaded="AllLoaded")
    assert found["pool"] == "Shared"
    services, _ = await stand.kube.list(INFERENCE_SERVICES, stand.namespace)
    assert [each["metadata"]["name"] for each in services] == [SERVICE]
    await write("Stable", 1)
    await pool_of(stand)
    await patch_service(stand, SERVICE, {"spec": {"model": {"uri": "pvc://models/2"}}})
    await stand.change("sql", dedicated={"maxReplicas": 3})
    pool = await pool_of(stand, lambda body: body["spec"]["scaling"]["maxReplicas"] == 3)
    assert pool["spec"]["model"]["uri"] == "pvc://models"
    await write("Stable", 2)
    await pool_of(stand, lambda body: body["spec"]["model"]["uri"] == "pvc://models/2")


async def test_a_refused_change_of_a_pool_that_serves_is_shown(
    stand: AdapterStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start_pool(stand)
    await stand.until("sql", PoolReady="Serving", Loaded="AllLoaded")
    merge_at_server = stand.kube.merge

    async def refuse(resource: Resource, *args: Any, **kwargs: Any) -> Object:
        if resource == INFERENCE_SERVICES and kwargs["manager"] == "penstock-adapters":
            raise Rejected("a policy denied the request")
        return await merge_at_server(resource, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(stand.kube, "merge", refuse)
        await stand.change("sql", dedicated={"maxReplicas": 3})
        status = await stand.until("sql", PoolReady="ServiceRefused", Ready="Ready")
        assert "a policy denied the request" in str(status["conditions"])
        await stand.until_event("sql", "Warning", "ServiceRefused")
    await stand.change("sql", dedicated={"maxReplicas": 4})
    await stand.until("sql", PoolReady="Serving")


async def test_a_pool_is_deleted_though_the_status_has_lost_it(stand: AdapterStand) -> None:
    await stand.create("sql", pool="Dedicated")
    await pool_of(stand)
    status = await stand.until("sql", PoolReady="EnginesStarting")
    await stand.stop_placer()
    await stand.kube.merge(
        LORA_ADAPTERS, stand.namespace, "sql", {"status": dict.fromkeys(status)},
        manager="test", sub="status",
    )  # fmt: skip
    await stand.change("sql", **TO_SHARED)
    await stand.start_placer()
    await until_gone(stand)
