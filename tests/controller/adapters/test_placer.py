"""Placement of adapters and their statuses, at a real API server."""

import asyncio
import time

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from tests.support.cluster.adapter_stand import AdapterStand, adapter_stand, engine_name, uri_of

from penstock.clients.kubernetes.resources import LORA_ADAPTERS
from penstock.controller.adapters.metrics import AdapterMetrics
from penstock.controller.http.placements import PATH, Placements
from penstock.core.adapters.demand import AdapterCounts
from penstock.core.adapters.placement_record import PlacementRecord
from penstock.core.adapters.replica import Copy
from penstock.core.formats.serialization import deserialize
from penstock.errors import Forbidden

pytestmark = pytest.mark.cluster

SQL = engine_name("sql")
ALL = {"policy": "All"}
REFUSED = {"error": {"message": "rank 64 is above 16", "code": "rank_too_large"}}


@pytest.fixture
async def stand(kube, namespace):
    async with adapter_stand(kube, namespace) as made:
        yield made


def instances(status):
    return {each["podName"]: each["state"] for each in status.get("instances", [])}


async def test_all_engines_get_an_adapter_also_later_ones(stand: AdapterStand) -> None:
    a = await stand.add_engine("chat-a")
    await stand.create("sql", placement=ALL)
    status = await stand.until("sql", Ready="Ready", Loaded="AllLoaded", Reconciling="Settled")
    assert a.entries[SQL]["path"] == "/adapters/pvc/adapters/sql"
    assert instances(status) == {"chat-a": "Loaded"}
    assert (status["modelName"], status["rank"], status["sizeBytes"]) == ("sql", 8, 4096)
    assert (status["desiredReplicas"], status["loadedReplicas"]) == (1, 1)
    await stand.add_engine("chat-b")
    await stand.until_true(lambda: SQL in stand.engines["chat-b"].entries)
    for _ in range(100):
        status = (await stand.get("sql"))["status"]
        if status["loadedReplicas"] == 2:
            break
        await asyncio.sleep(0.1)
    assert instances(status) == {"chat-a": "Loaded", "chat-b": "Loaded"}
    await stand.until_event("sql", "Normal", "Loaded")


async def test_a_settled_adapter_is_neither_written_nor_loaded_again(stand: AdapterStand) -> None:
    engine = await stand.add_engine("chat-a")
    await stand.create("sql", placement=ALL)
    await stand.until("sql", Loaded="AllLoaded")
    version, calls = await stand.version("sql"), list(engine.calls)
    for _ in range(3):
        await stand.placer.tick()
    await stand.start_placer()  # a new leader
    await stand.passes()
    assert await stand.version("sql") == version
    assert engine.calls == calls == [("load", SQL)]


async def test_another_version_replaces_the_old_one(stand: AdapterStand) -> None:
    engine = await stand.add_engine("chat-a")
    await stand.create("sql", placement=ALL)
    await stand.until("sql", Loaded="AllLoaded")
    await stand.change("sql", model={"uri": "pvc://adapters/sql-2"})
    new = engine_name("sql", "pvc://adapters/sql-2")
    await stand.until_true(lambda: engine.entries.keys() == {new})
    for _ in range(100):
        status = (await stand.get("sql"))["status"]
        if status["revision"] == new.partition("@")[2] and status["loadedReplicas"]:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(status)


async def test_a_deleted_adapter_is_unloaded_and_what_others_loaded_is_not(
    stand: AdapterStand,
) -> None:
    engine = await stand.add_engine("chat-a")
    engine.add("by-hand")
    await stand.create("sql", placement=ALL)
    await stand.until("sql", Loaded="AllLoaded")
    await stand.kube.delete(LORA_ADAPTERS, stand.namespace, "sql")
    await stand.until_true(lambda: SQL not in engine.entries)
    assert "by-hand" in engine.entries


async def test_a_refused_adapter_has_the_engines_reason_and_harms_no_other(
    stand: AdapterStand,
) -> None:
    engine = await stand.add_engine("chat-a")
    engine.refused[SQL] = 400, REFUSED
    await stand.create("sql", placement=ALL)
    await stand.create("code", placement=ALL)
    await stand.until("sql", Resolved="RankTooLarge", Stalled="RankTooLarge")
    # Its state is Loading while the load is tried again.
    await stand.until_instances(
        "sql", [{"podName": "chat-a", "state": "Failed", "message": "rank 64 is above 16"}]
    )
    await stand.until("code", Ready="Ready", Loaded="AllLoaded")
    loads, since_s = engine.calls.count(("load", SQL)), time.monotonic()
    await asyncio.sleep(3)
    waited_s = time.monotonic() - since_s
    assert (
        engine.calls.count(("load", SQL)) <= loads + 1 + waited_s / 5
    )  # tries are 5 s apart or more
    await stand.until_event("sql", "Warning", "RankTooLarge")
    engine.refused.clear()
    await stand.change("sql", model={"uri": "pvc://adapters/sql-good"})
    await stand.until("sql", Resolved="Resolved", Stalled="NotStalled")


async def test_a_busy_engine_is_asked_again(stand: AdapterStand) -> None:
    engine = await stand.add_engine("chat-a")
    engine.refused[SQL] = 503, {"error": {"message": "all in use"}}
    await stand.create("sql", placement=ALL)
    await stand.until("sql", Loaded="LoadFailed", Resolved="NotRead", Reconciling="LoadFailed")
    engine.refused.clear()
    await stand.until("sql", Loaded="AllLoaded")


async def test_an_engine_that_refuses_an_adapter_delays_no_other(stand: AdapterStand) -> None:
    await stand.add_engine("chat-a")
    broken = await stand.add_engine("chat-b")
    broken.refused[SQL] = 400, REFUSED
    await stand.create("sql", placement=ALL)
    await stand.until_true(lambda: broken.calls.count(("load", SQL)) == 2)  # after 5 s
    await stand.passes()
    status = await stand.until("sql", Loaded="LoadFailed", Resolved="Resolved", Ready="Ready")
    assert instances(status) == {"chat-a": "Loaded", "chat-b": "Failed"}
    other = await stand.add_engine("chat-c")
    await stand.until_true(lambda: SQL in other.entries, timeout_s=4)
    assert broken.calls.count(("load", SQL)) == 2
    del stand.pods["chat-b"]
    successor = await stand.add_engine("chat-d")
    await stand.until_true(lambda: SQL in successor.entries, timeout_s=4)
    status = await stand.until("sql", Loaded="AllLoaded")
    assert instances(status).keys() == {"chat-a", "chat-c", "chat-d"}


async def test_an_engine_in_place_of_one_that_refused_is_asked_at_once(stand: AdapterStand) -> None:
    broken = await stand.add_engine("chat-a")
    broken.refused[SQL] = 400, REFUSED
    await stand.create("sql", placement=ALL)
    await stand.until_true(lambda: broken.calls.count(("load", SQL)) == 2)
    await stand.until("sql", Resolved="RankTooLarge")
    del stand.pods["chat-a"]
    await stand.add_engine("chat-b")
    await stand.until("sql", timeout_s=4, Loaded="AllLoaded", Stalled="NotStalled")


async def test_why_an_adapter_is_not_accepted(stand: AdapterStand) -> None:
    other = stand.service("plain", engine={})
    stand.services[stand.namespace, "plain"] = other
    await stand.add_engine("chat-a")
    await stand.create("sql")
    await stand.create("elsewhere", model={"uri": "pvc://other/sql"})
    await stand.create("orphan", serviceRef={"name": "none"})
    await stand.create("plain-sql", serviceRef={"name": "plain"})
    orphan = await stand.until("orphan", Accepted="ServiceNotFound", Reconciling="ServiceNotFound")
    assert "modelName" not in orphan
    await stand.until("plain-sql", Accepted="LoraNotEnabled", Stalled="LoraNotEnabled")
    await stand.until("elsewhere", Accepted="SourceNotMounted", Stalled="SourceNotMounted")
    await stand.until("sql", Accepted="Accepted")
    await asyncio.sleep(1.1)  # creation times are in seconds
    await stand.create("second", model={"uri": uri_of("second"), "name": "sql"})
    await stand.create("third", model={"uri": uri_of("third"), "name": "chat"})
    status = await stand.until("second", Accepted="ModelNameInUse", Ready="ModelNameInUse")
    (accepted,) = (c for c in status["conditions"] if c["type"] == "Accepted")
    assert "LoraAdapter sql" in accepted["message"]
    await stand.until("third", Accepted="ModelNameInUse")


async def test_an_adapter_without_requests_is_read_once_and_ready(stand: AdapterStand) -> None:
    await stand.create("sql")
    await stand.until("sql", Accepted="Accepted", Ready="NoEngines", Reconciling="NoEngines")
    engine = await stand.add_engine("chat-a")
    await stand.until("sql", Resolved="Resolved", Ready="Ready", Reconciling="Settled")
    del engine.entries[SQL]  # evicted by a gateway for another adapter
    status = await stand.until("sql", Loaded="OnDemand", Resolved="Resolved", Ready="Ready")
    assert status.get("instances", []) == []
    assert engine.calls.count(("load", SQL)) == 1


async def test_an_adapter_of_a_service_at_zero_is_ready(stand: AdapterStand) -> None:
    assert stand.services is not None

    def set_traffic(reason: str) -> None:
        traffic = {"type": "TrafficAvailable", "status": "True", "reason": reason}
        stand.services = {stand.key: stand.service() | {"status": {"conditions": [traffic]}}}

    set_traffic("ScaledToZero")
    await stand.create("sql", placement=ALL)
    await stand.until("sql", Loaded="ScaledToZero", Ready="ScaledToZero", Reconciling="Settled")
    set_traffic("Waking")
    await stand.until("sql", Loaded="Waking", Ready="Waking", Reconciling="Settled")
    set_traffic("Serving")
    await stand.add_engine("chat-a")
    await stand.until("sql", Loaded="AllLoaded", Ready="Ready", Reconciling="Settled")


async def test_requests_bring_copies(stand: AdapterStand) -> None:
    engines = [await stand.add_engine(f"chat-{name}") for name in "abc"]
    stand.counts = {SQL: AdapterCounts()}
    await stand.create("sql")
    await stand.until("sql", Resolved="Resolved")
    stand.counts = {SQL: AdapterCounts(arrivals=50, in_flight=40)}
    await stand.until_true(lambda: all(SQL in each.entries for each in engines))


async def test_a_fixed_number_of_copies(stand: AdapterStand) -> None:
    engines = [await stand.add_engine(f"chat-{name}") for name in "abc"]
    await stand.create("sql", placement={"policy": "Fixed", "replicas": 2})
    status = await stand.until("sql", Loaded="AllLoaded")
    assert sum(SQL in each.entries for each in engines) == 2 == status["loadedReplicas"]


async def test_more_pinned_adapters_than_slots(stand: AdapterStand) -> None:
    engine = await stand.add_engine("chat-a", slots=1)
    await stand.create("sql", placement=ALL | {"eviction": "Never", "priority": 1})
    await stand.until("sql", Loaded="AllLoaded")
    await stand.create("code", placement=ALL)
    await stand.until("code", Loaded="NoAdapterSlot", Ready="NoAdapterSlot")
    assert engine.entries.keys() == {SQL}


async def test_a_killed_engine_leaves_the_status_at_once_and_returns(stand: AdapterStand) -> None:
    await stand.add_engine("chat-a")
    await stand.add_engine("chat-b")
    await stand.create("sql", placement=ALL)
    await stand.until("sql", Loaded="AllLoaded")
    stand.engines["chat-b"].entries.clear()  # its process started again
    for _ in range(100):
        if stand.engines["chat-b"].calls.count(("load", SQL)) == 2:
            break
        await asyncio.sleep(0.05)
    status = await stand.until("sql", Loaded="AllLoaded")
    assert instances(status) == {"chat-a": "Loaded", "chat-b": "Loaded"}


async def test_nothing_is_unloaded_until_all_is_known(stand: AdapterStand) -> None:
    engine = await stand.add_engine("chat-a")
    await stand.create("sql", placement=ALL)
    await stand.until("sql", Loaded="AllLoaded")
    services, stand.services = stand.services, None
    await stand.start_placer()
    await stand.passes()
    assert engine.calls == [("load", SQL)]
    stand.services = services


async def test_the_record_of_a_placement(stand: AdapterStand) -> None:
    engine = await stand.add_engine("chat-a")
    code = engine_name("code")
    engine.refused[code] = 400, REFUSED
    stand.counts = {SQL: AdapterCounts(arrivals=3, misses=1, in_flight=1)}
    await stand.create("sql", placement={"minReplicas": 1})
    await stand.create("code", placement=ALL)
    await stand.until("sql", Loaded="AllLoaded")
    await stand.until("code", Resolved="RankTooLarge")
    await stand.placer.tick()
    placements = Placements()
    placements.source = stand.placer.record
    app = Starlette(routes=[Route(PATH, placements.get)])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://operator") as client:
        assert (await client.get(f"/placements/{stand.namespace}/none")).status_code == 404
        answer = await client.get(f"/placements/{stand.namespace}/chat")
        record = deserialize(PlacementRecord, answer.json())
    assert record.service == f"{stand.namespace}/chat"
    assert (record.num_loads, record.num_failed_loads) == (1, 1)
    (replica,) = record.replicas
    assert (replica.pod, replica.slots) == ("chat-a", 4)
    assert replica.copies == {SQL: Copy("Resident", 0, 8, 4096)}
    failed, loaded = record.adapters
    assert (failed.name, failed.engine_name, failed.has_copies) == ("code", code, False)
    assert failed.errors == {"chat-a": "rank 64 is above 16"}
    assert 0 < failed.retry_in_s <= 5
    assert (loaded.wanted, loaded.counts.misses, loaded.demand.busy) == (1, 1, 1.0)
    assert "1" in loaded.reason


async def test_metrics_of_a_service(stand: AdapterStand) -> None:
    engine = await stand.add_engine("chat-a")
    engine.refused[engine_name("code")] = 400, REFUSED
    engine.add("by-hand")
    await stand.create("sql", placement=ALL)
    await stand.create("code", placement=ALL)
    await stand.until("sql", Loaded="AllLoaded")
    await stand.until("code", Resolved="RankTooLarge")
    await stand.placer.tick()
    values = {
        (sample.name, *list(sample.labels.values())[1:]): sample.value
        for family in AdapterMetrics(stand.placer).collect()
        for sample in family.samples
    }
    prefix = "penstock_operator_adapter"
    assert values == {
        (f"{prefix}s",): 2,
        (f"{prefix}_copies_wanted",): 2,
        (f"{prefix}_copies_loaded",): 1,
        (f"{prefix}_slots",): 4,
        (f"{prefix}s_failing",): 1,
        (f"{prefix}_loads_total", "ok"): 1,
        (f"{prefix}_loads_total", "failed"): 1,
        (f"{prefix}_unloads_total",): 0,
    }


async def test_a_refused_adapter_takes_no_slot_of_another_one(stand: AdapterStand) -> None:
    engine = await stand.add_engine("chat-a", slots=2)
    engine.refused[engine_name("code")] = 400, REFUSED
    await stand.create("sql", placement={"minReplicas": 0})
    await stand.create("text")
    await stand.until("sql", Resolved="Resolved")
    engine.add(engine_name("text"))
    await stand.create("code", placement=ALL)
    await stand.until("code", Resolved="RankTooLarge")
    engine.add(SQL)
    engine.add(engine_name("text"))
    await stand.placer.tick()
    calls = list(engine.calls)
    await asyncio.sleep(7)  # longer than the first pause after a failure
    assert engine.calls == calls
    assert engine.entries.keys() == {SQL, engine_name("text")}


async def test_a_new_operator_remembers_refused_adapters(stand: AdapterStand) -> None:
    engine = await stand.add_engine("chat-a")
    engine.refused[SQL] = 400, REFUSED
    await stand.create("sql", placement=ALL)
    await stand.until("sql", Resolved="RankTooLarge", Loaded="LoadFailed")
    await stand.placer.tick()
    version, calls = await stand.version("sql"), list(engine.calls)
    await stand.start_placer()
    await stand.passes()
    assert await stand.version("sql") == version
    assert engine.calls == calls
    engine.refused.clear()
    await stand.until("sql", Loaded="AllLoaded", Stalled="NotStalled")


async def test_nothing_is_unloaded_if_the_api_server_shows_no_adapters(
    stand: AdapterStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator whose role, or whose cluster, is older than LoraAdapters."""
    engine = await stand.add_engine("chat-a")
    engine.add(SQL)
    await stand.stop_placer()

    async def refuse(*_: object, **__: object) -> None:
        raise Forbidden("no right to list loraadapters")

    monkeypatch.setattr(stand.kube, "list", refuse)
    await stand.start_placer()
    await stand.passes()
    assert engine.calls == []
    assert SQL in engine.entries


async def test_copies_stay_while_engines_take_adapters_and_the_spec_does_not(
    stand: AdapterStand,
) -> None:
    """The spec lost engine.lora, and the engines of the earlier revision still serve."""
    engine = await stand.add_engine("chat-a")
    await stand.create("sql", placement=ALL)
    await stand.until("sql", Loaded="AllLoaded")
    stand.services = {stand.key: stand.service(engine={})}
    await stand.passes()
    assert engine.calls == [("load", SQL)]
    stand.pods.clear()
    await stand.until("sql", Accepted="LoraNotEnabled")
