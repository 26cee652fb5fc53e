"""Dedicated pools of adapters, at a real API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from campaigns.adapter_stand import SERVICE, AdapterStand, adapter_stand, engine_name

from penstock.cli import rollout_revisions
from penstock.cli.rollout_target import Refused, parse_target
from penstock.clients.kube import Kube, Object
from penstock.clients.resources import INFERENCE_SERVICES, LORA_ADAPTERS, RESOURCE_QUOTAS, Resource
from penstock.controller import dedicated_services
from penstock.core.adapters.demand import AdapterCounts
from penstock.errors import NotFound, Rejected

pytestmark = pytest.mark.cluster

SQL = engine_name("sql")
POOL = "chat-sql"
TO_SHARED = {"pool": "Shared", "dedicated": None}


@pytest.fixture
async def stand(kube: Kube, namespace: str) -> AsyncIterator[AdapterStand]:
    async with adapter_stand(kube, namespace) as made:
        await made.watch_services()
        yield made


async def pool_of(stand: AdapterStand, is_as_wanted: Callable[[Object], bool] = bool) -> Object:
    """Wait until the dedicated pool exists and is as wanted. Returns it."""
    body: Object = {}
    for _ in range(200):
        try:
            body = await stand.kube.get(INFERENCE_SERVICES, stand.namespace, POOL)
        except NotFound:
            body = {}
        if body and is_as_wanted(body):
            return body
        await asyncio.sleep(0.05)
    raise AssertionError(body)


async def until_gone(stand: AdapterStand, within_s: int = 10) -> None:
    for _ in range(within_s * 20):
        names = {
            each["metadata"]["name"]
            for each in (await stand.kube.list(INFERENCE_SERVICES, stand.namespace))[0]
        }
        if POOL not in names:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(names)


async def until_status(stand: AdapterStand, **fields: object) -> Object:
    status: Object = {}
    for _ in range(600):
        status = (await stand.get("sql")).get("status", {})
        if {name: status.get(name) for name in fields} == fields:
            return status
        await asyncio.sleep(0.05)
    raise AssertionError(status)


async def merge(stand: AdapterStand, name: str, body: Object) -> None:
    await stand.kube.merge(INFERENCE_SERVICES, stand.namespace, name, body, manager="user")


async def start_pool(stand: AdapterStand) -> None:
    """An adapter that was in the shared pool, and that its dedicated pool serves now."""
    shared = await stand.add_engine("chat-a")
    await stand.create("sql", placement={"minReplicas": 1})
    status = await stand.until("sql", Loaded="AllLoaded")
    assert status["pool"] == "Shared"
    await stand.change("sql", pool="Dedicated")
    await stand.until("sql", PoolReady="EnginesStarting", Ready="Ready")
    own = await stand.add_engine("chat-sql-a", service=POOL)
    await stand.until_true(lambda: SQL in own.entries)
    assert SQL in shared.entries
    assert (await stand.get("sql"))["status"]["pool"] == "Shared"
    await stand.set_traffic(POOL)
    await until_status(stand, pool="Dedicated", dedicatedService=POOL, poolGeneration=2)


async def test_an_adapter_moves_to_a_dedicated_pool_and_back(stand: AdapterStand) -> None:
    await start_pool(stand)
    shared, own = stand.engines["chat-a"], stand.engines["chat-sql-a"]
    await stand.until_true(lambda: SQL not in shared.entries)
    status = await stand.until("sql", PoolReady="Serving", Loaded="AllLoaded", Stalled="NotStalled")
    assert [each["podName"] for each in status["instances"]] == ["chat-sql-a"]
    assert ("Normal", "PoolChanged") in await stand.events("sql")
    second = await stand.add_engine("chat-sql-b", service=POOL)
    await stand.until_true(lambda: SQL in second.entries)
    shared.refused[SQL] = 503, {"error": {"message": "all in use"}}
    await stand.change("sql", **TO_SHARED)
    await stand.until("sql", PoolReady="CopyMissing", Ready="Ready")
    await stand.until_true(lambda: ("load", SQL) in shared.calls[1:])
    assert own.entries.keys() == {SQL}
    await pool_of(stand)
    stand.applied = {"gateway-a": 2}
    shared.refused.clear()
    await until_status(stand, pool="Shared", poolGeneration=3)
    await asyncio.sleep(2.2)
    assert own.entries.keys() == {SQL}  # the gateway may still send requests there
    await pool_of(stand)
    stand.applied = {"gateway-a": 3}
    await until_gone(stand)
    await stand.until("sql", PoolReady="Serving", Loaded="AllLoaded", Reconciling="Settled")
    assert "dedicatedService" not in (await stand.get("sql"))["status"]


async def test_a_settled_pool_is_not_written(stand: AdapterStand) -> None:
    await start_pool(stand)
    await stand.until("sql", PoolReady="Serving", Loaded="AllLoaded", Reconciling="Settled")
    await asyncio.sleep(1.5)
    before = await stand.version("sql"), (await pool_of(stand))["metadata"]["resourceVersion"]
    await stand.start_placer()  # a new leader
    await asyncio.sleep(2.5)
    after = await stand.version("sql"), (await pool_of(stand))["metadata"]["resourceVersion"]
    assert after == before


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
    await merge(stand, SERVICE, {"spec": {"model": {"uri": "pvc://models/2"}}})
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
        await merge(stand, POOL, {"spec": edit})
        await pool_of(stand, lambda body: body["spec"] == wanted)
    await merge(
        stand,
        POOL,
        {"metadata": {"labels": {"serving.penstock.dev/adapter": "other", "mine": "1"}}},
    )
    labels = {"serving.penstock.dev/adapter": "sql", "mine": "1"}
    await pool_of(stand, lambda body: body["metadata"]["labels"].items() >= labels.items())


async def test_a_deleted_pool_is_made_again_and_the_shared_one_serves(stand: AdapterStand) -> None:
    await start_pool(stand)
    uid = (await pool_of(stand))["metadata"]["uid"]
    del stand.pods["chat-sql-a"]
    await stand.kube.delete(INFERENCE_SERVICES, stand.namespace, POOL)
    await pool_of(stand, lambda body: body["metadata"]["uid"] != uid)
    await until_status(stand, pool="Shared", poolGeneration=3)
    await stand.until("sql", PoolReady="EnginesStarting", Ready="Ready", Loaded="AllLoaded")


async def test_commands_that_change_a_spec_refuse_a_pool(stand: AdapterStand) -> None:
    await stand.create("sql", pool="Dedicated")
    before = await pool_of(stand)
    target = parse_target(POOL)
    with pytest.raises(Refused, match="has the spec of chat: change that one"):
        await rollout_revisions.restart(stand.kube, stand.namespace, target, watch=False)
    assert (await pool_of(stand))["spec"] == before["spec"]


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
    assert ("Warning", "ServiceNameInUse") in await stand.events("sql")
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


async def test_a_pool_takes_no_other_adapter_and_holds_no_name(stand: AdapterStand) -> None:
    await start_pool(stand)
    await stand.create("code", serviceRef={"name": POOL})
    await stand.until("code", Accepted="ServiceDedicated", Stalled="ServiceDedicated")
    await stand.create("text", model={"uri": "pvc://adapters/text", "name": POOL})
    await stand.until("text", Accepted="Accepted")
    assert stand.engines["chat-sql-a"].entries.keys() == {SQL}


async def test_the_pool_goes_with_its_service(stand: AdapterStand) -> None:
    await start_pool(stand)
    await stand.kube.delete(INFERENCE_SERVICES, stand.namespace, SERVICE)
    await until_gone(stand)
    status = await stand.until("sql", Accepted="ServiceNotFound", PoolReady="ServiceNotFound")
    assert status["pool"] == "Shared"


async def test_both_versions_are_in_the_dedicated_pool(stand: AdapterStand) -> None:
    await start_pool(stand)
    await stand.until("sql", PoolReady="Serving", Loaded="AllLoaded")
    new = engine_name("sql", "pvc://adapters/sql-2")
    await stand.change("sql", model={"uri": "pvc://adapters/sql-2"})
    own, shared = stand.engines["chat-sql-a"], stand.engines["chat-a"]
    await stand.until_true(lambda: own.entries.keys() == {new})
    assert ("load", new) not in shared.calls
    status = await stand.until("sql", RolledOut="Stable", PoolReady="Serving", Loaded="AllLoaded")
    assert status["pool"] == "Dedicated"


async def test_a_canary_runs_in_the_pool_that_serves_which_stays_until_its_end(
    stand: AdapterStand,
) -> None:
    await start_pool(stand)
    stand.counts = {SQL: AdapterCounts()}
    await stand.until("sql", PoolReady="Serving", Loaded="AllLoaded")
    await asyncio.sleep(1.5)
    stand.counts = {SQL: AdapterCounts(arrivals=500, in_flight=1)}
    await asyncio.sleep(2.5)
    new = engine_name("sql", "pvc://adapters/sql-2")
    await stand.change("sql", model={"uri": "pvc://adapters/sql-2"})
    await stand.until("sql", RolledOut="Judging", PoolReady="Serving")
    own, shared = stand.engines["chat-sql-a"], stand.engines["chat-a"]
    assert own.entries.keys() == {SQL, new}
    await stand.change("sql", **TO_SHARED)
    await stand.until("sql", PoolReady="VersionRollout", RolledOut="Judging")
    assert (await stand.get("sql"))["status"]["pool"] == "Dedicated"
    await stand.change("sql", model={"uri": "pvc://adapters/sql"})
    await until_status(stand, pool="Shared")
    await stand.until("sql", RolledOut="Stable", PoolReady="Serving")
    await stand.until_true(lambda: shared.entries.keys() == {SQL})


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
    await merge(stand, SERVICE, {"spec": {"model": {"uri": "pvc://models/2"}}})
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
        assert ("Warning", "ServiceRefused") in await stand.events("sql")
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


async def test_a_pool_whose_service_takes_adapters_no_more(stand: AdapterStand) -> None:
    await start_pool(stand)
    await stand.until("sql", PoolReady="Serving", Loaded="AllLoaded")
    own = stand.engines["chat-sql-a"]
    del stand.pods["chat-a"]
    await merge(stand, SERVICE, {"spec": {"engine": {"lora": None}}})
    await pool_of(stand, lambda body: "lora" not in body["spec"]["engine"])
    assert own.entries.keys() == {SQL}  # until a rollout of the pool has removed its engines
    del stand.pods["chat-sql-a"]
    await stand.until("sql", Accepted="LoraNotEnabled")
    await stand.change("sql", **TO_SHARED)
    await until_gone(stand)
