"""Adapters that move between the shared and a dedicated pool, at a real API server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.controller.adapters.pool_stand import (
    POOL,
    SQL,
    TO_SHARED,
    patch_service,
    pool_of,
    pool_stand,
    start_pool,
    until_gone,
    until_status,
)
from tests.support.cluster.adapter_stand import SERVICE, AdapterStand, engine_name

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.clients.machine.clock import unix_time
from penstock.controller.adapters import pools as adapter_pools
from penstock.core.adapters.demand import AdapterCounts
from penstock.core.rollout.routes import GATEWAY_TIMEOUT_S

pytestmark = pytest.mark.cluster


@pytest.fixture
async def stand(kube: Kube, namespace: str) -> AsyncIterator[AdapterStand]:
    async with pool_stand(kube, namespace) as made:
        yield made


async def test_an_adapter_moves_to_a_dedicated_pool_and_back(stand: AdapterStand) -> None:
    await start_pool(stand)
    shared, own = stand.engines["chat-a"], stand.engines["chat-sql-a"]
    await stand.until_true(lambda: SQL not in shared.entries)
    status = await stand.until("sql", PoolReady="Serving", Loaded="AllLoaded", Stalled="NotStalled")
    assert [each["podName"] for each in status["instances"]] == ["chat-sql-a"]
    await stand.until_event("sql", "Normal", "PoolChanged")
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
    await stand.passes()
    assert own.entries.keys() == {SQL}  # the gateway may still send requests there
    await pool_of(stand)
    stand.applied = {"gateway-a": 3}
    await until_gone(stand)
    await stand.until("sql", PoolReady="Serving", Loaded="AllLoaded", Reconciling="Settled")
    assert "dedicatedService" not in (await stand.get("sql"))["status"]


async def test_a_silent_gateway_does_not_keep_a_pool_that_was_left(
    stand: AdapterStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_s = 0.0
    monkeypatch.setattr(adapter_pools, "unix_time", lambda: unix_time() + ahead_s)
    stand.applied = {"gateway-a": 2}
    await start_pool(stand)
    stand.applied = {"gateway-a": None}
    await stand.change("sql", **TO_SHARED)
    await until_status(stand, pool="Shared", poolGeneration=3)
    await stand.until("sql", PoolReady="Serving")
    await pool_of(stand)
    ahead_s = GATEWAY_TIMEOUT_S - 15
    await stand.start_placer()  # a new leader, which goes on with the wait
    await stand.passes()
    await pool_of(stand)
    ahead_s = GATEWAY_TIMEOUT_S
    await until_gone(stand)


async def test_a_pool_without_room_says_so_and_stalls_with_its_service(stand: AdapterStand) -> None:
    await stand.add_engine("chat-a")
    await stand.create("sql", pool="Dedicated", placement={"minReplicas": 1})
    await pool_of(stand)
    await stand.set_conditions(POOL, WorkloadReady=("False", "no GPU is free"))
    await until_pool_message(stand, "EnginesStarting", "(no GPU is free)")
    late = "no progress within 600 s: no GPU is free"
    await stand.set_conditions(POOL, Stalled=("True", late))
    await stand.until("sql", PoolReady="ServiceStalled", Stalled="ServiceStalled", Ready="Ready")
    await until_pool_message(stand, "ServiceStalled", late)
    await stand.until_event("sql", "Warning", "ServiceStalled")
    await stand.set_conditions(POOL, TrafficAvailable=("True", ""))
    await stand.until("sql", PoolReady="EnginesStarting", Stalled="NotStalled")


async def until_pool_message(stand: AdapterStand, reason: str, text: str) -> None:
    """Wait until the message of PoolReady has the text."""
    message = ""
    for _ in range(200):
        status = await stand.until("sql", PoolReady=reason)
        (message,) = (c["message"] for c in status["conditions"] if c["type"] == "PoolReady")
        if text in message:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(message)


async def test_a_settled_pool_is_not_written(stand: AdapterStand) -> None:
    await start_pool(stand)
    await stand.until("sql", PoolReady="Serving", Loaded="AllLoaded", Reconciling="Settled")
    await stand.passes()
    before = await stand.version("sql"), (await pool_of(stand))["metadata"]["resourceVersion"]
    await stand.start_placer()  # a new leader
    await stand.passes()
    after = await stand.version("sql"), (await pool_of(stand))["metadata"]["resourceVersion"]
    assert after == before


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
    await stand.passes()
    stand.counts = {SQL: AdapterCounts(arrivals=500, in_flight=1)}
    await stand.passes()
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


async def test_a_pool_whose_service_takes_adapters_no_more(stand: AdapterStand) -> None:
    await start_pool(stand)
    await stand.until("sql", PoolReady="Serving", Loaded="AllLoaded")
    own = stand.engines["chat-sql-a"]
    del stand.pods["chat-a"]
    await patch_service(stand, SERVICE, {"spec": {"engine": {"lora": None}}})
    await pool_of(stand, lambda body: "lora" not in body["spec"]["engine"])
    assert own.entries.keys() == {SQL}  # until a rollout of the pool has removed its engines
    del stand.pods["chat-sql-a"]
    await stand.until("sql", Accepted="LoraNotEnabled")
    await stand.change("sql", **TO_SHARED)
    await until_gone(stand)
