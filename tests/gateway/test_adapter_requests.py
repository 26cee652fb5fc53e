"""Requests for adapters: sent to engines that have them, or loaded on demand, over real sockets."""

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest
from gateway.lora_engine import AdapterEngine
from gateway.test_adapter_names import adapter

from penstock.clients import stats_report
from penstock.core.adapters.demand import AdapterCounts
from penstock.core.observed.lora_engine import LoraEngine
from penstock.core.spec.objectives import Objectives
from penstock.gateway import adapter_polls
from penstock.gateway.snapshot import Snapshot
from penstock.gateway.snapshot_builder import build

SQL = adapter("sql", model="chat-sql")
(BUILT,) = build([], [], [], [SQL]).adapters
NAME = BUILT.engine_name


@pytest.fixture(autouse=True)
def short_polls(monkeypatch):
    monkeypatch.setattr(adapter_polls, "POLL_INTERVAL_S", 0.05)


@pytest.fixture
async def pool(start_engine, start_gateway, make_service, until):
    """`await pool(behavior, …, adapters=…)` -> a gateway in front of a service with these engines."""

    async def make(*behaviors, adapters=(SQL,), revisions=None, slots=4, more=None, **settings):
        revisions = revisions or ["r1"] * len(behaviors)
        engines = [
            await start_engine(behavior, revision)
            for behavior, revision in zip(behaviors, revisions, strict=True)
        ]
        weights = dict.fromkeys(revisions, 50)
        front = await start_gateway(**settings)
        takers = {e.endpoint().pod: LoraEngine("Penstock", slots) for e in engines if slots}
        service = replace(make_service(*engines, weights=weights), lora_engines=takers)
        service = replace(service, **(more or {}))
        built = build([], [], [], adapters).adapters
        front.snapshots.publish(Snapshot((service,), (), built))
        residency = front.gateway.state.adapters.residency
        if takers and adapters:
            await until(
                lambda: all(residency.copies(e.endpoint().pod) is not None for e in engines)
            )
        return front

    return make


async def ask(front, model="chat-sql", **fields):
    status, body = await front.ask(model=model, stream=False, **fields)
    return status, json.loads(body)


async def test_requests_go_to_the_engines_that_have_the_adapter(pool):
    cold, one, other = AdapterEngine(), AdapterEngine(NAME), AdapterEngine(NAME)
    front = await pool(cold, one, other)
    for _ in range(40):
        assert (await ask(front))[0] == 200
    assert set(one.served) == set(other.served) == {NAME}
    assert cold.served == []
    assert min(len(one.served), len(other.served)) > 5  # one in 60,000 times by chance
    assert [engine.calls for engine in (cold, one, other)] == [[], [], []]
    assert (await ask(front, "chat"))[0] == 200


async def test_least_loaded_copy_is_selected(pool, until):
    gate = asyncio.Event()

    class Slow(AdapterEngine):
        async def _complete(self, request, model):
            self.served.append(model)
            await gate.wait()
            await request.whole(b"{}")

    engines = [Slow(NAME) for _ in range(3)]
    front = await pool(AdapterEngine(), *engines)
    asking = [asyncio.create_task(ask(front)) for _ in range(12)]
    await until(lambda: sum(len(engine.served) for engine in engines) == 12)
    assert [len(engine.served) for engine in engines] == [4, 4, 4]
    gate.set()
    await asyncio.gather(*asking)


async def test_a_cold_adapter_is_loaded_once_for_all_that_wait(pool):
    engines = AdapterEngine(load_s=0.1), AdapterEngine(load_s=0.1)
    front = await pool(*engines)
    results = await asyncio.gather(*(ask(front) for _ in range(20)))
    assert {status for status, _ in results} == {200}
    calls = [call for engine in engines for call in engine.calls]
    assert calls == [("load", NAME)]
    (loader,) = (engine for engine in engines if engine.calls)
    assert loader.paths == {NAME: "/adapters/pvc/a/sql"}
    assert Counter(loader.served) == {NAME: 20}
    counts = front.gateway.state.stats.adapters.get(BUILT).counts()
    assert (counts.arrivals, counts.misses, counts.loads, counts.load_failures) == (20, 20, 1, 0)
    assert (counts.waiting, counts.in_flight, counts.failed) == (0, 0, 0)
    assert counts.load_s >= 0.1
    assert counts.work_tokens > 0


async def test_a_request_for_the_base_model_does_not_wait_for_a_load(pool, until):
    engine = AdapterEngine()
    engine.gate.clear()
    front = await pool(engine)
    waiting = asyncio.create_task(ask(front))
    await until(lambda: engine.calls)
    assert (await ask(front, "chat"))[0] == 200
    engine.gate.set()
    assert (await waiting)[0] == 200


async def test_a_client_that_leaves_does_not_end_the_load(pool, until):
    engine = AdapterEngine()
    engine.gate.clear()
    front = await pool(engine)
    leaving, staying = asyncio.create_task(ask(front)), asyncio.create_task(ask(front))
    await until(lambda: front.gateway.state.waiting == 2 and engine.calls)
    leaving.cancel()
    await until(lambda: front.gateway.state.waiting == 1)
    assert front.gateway.state.stats.adapters.get(BUILT).counts().waiting == 1
    engine.gate.set()
    assert (await staying)[0] == 200
    assert engine.calls == [("load", NAME)]


async def test_a_load_goes_on_without_requests(pool, until):
    engine = AdapterEngine()
    engine.gate.clear()
    front = await pool(engine)
    leaving = asyncio.create_task(ask(front))
    await until(lambda: engine.calls)
    leaving.cancel()
    await until(lambda: front.gateway.state.waiting == 0)
    engine.gate.set()
    await until(lambda: NAME in engine.copies)
    assert (await ask(front))[0] == 200
    assert engine.calls == [("load", NAME)]


async def test_an_adapter_that_engines_refuse_is_not_tried_again_before_its_backoff(pool):
    engines = AdapterEngine(), AdapterEngine()
    for engine in engines:
        engine.errors[NAME] = "400 Bad Request", "rank 64 is larger than 16"
    front = await pool(*engines)
    for _ in range(5):
        status, body = await ask(front)
        error = body["error"]
        assert (status, error["code"]) == (424, "adapter_load_failed")
        assert (
            error["message"] == "engines refuse the adapter `chat-sql`: rank 64 is larger than 16"
        )
    assert [call for engine in engines for call in engine.calls] == [("load", NAME)]
    assert (await ask(front, "chat"))[0] == 200
    counts = front.gateway.state.stats.adapters.get(BUILT).counts()
    assert (counts.loads, counts.load_failures, counts.failed) == (0, 1, 5)
    async with front.post(model="chat-sql") as got:
        assert 1 <= int(got.headers["retry-after"]) <= 5


async def test_another_version_of_a_refused_adapter_is_loaded(pool, make_service):
    engine = AdapterEngine()
    engine.errors[NAME] = "404 Not Found", "there is no such lora_path in --lora-dir"
    front = await pool(engine)
    assert (await ask(front))[0] == 424
    (service,) = front.snapshots.current.services
    fixed = build([], [], [], [adapter("sql", model="chat-sql", uri="pvc://a/v2")]).adapters
    front.snapshots.publish(Snapshot((service,), (), fixed))
    assert (await ask(front))[0] == 200
    assert engine.served == [fixed[0].engine_name]


async def test_another_engine_loads_what_one_has_no_room_for(pool):
    """The failure is the engine's: the next one is tried, and no back-off begins."""
    engines = AdapterEngine(), AdapterEngine()
    engines[0].errors[NAME] = "503 Service Unavailable", "all adapters in memory are in use"
    front = await pool(*engines)
    for _ in range(3):
        assert (await ask(front))[0] == 200
        engines[1].copies.clear()
        await asyncio.sleep(0.12)
    assert engines[0].served == []
    assert len(engines[1].served) == 3
    assert not front.gateway.state.endpoints.suspects


async def test_no_engine_with_room_is_a_503_with_the_reason(pool):
    engines = AdapterEngine(), AdapterEngine()
    for engine in engines:
        engine.errors[NAME] = "503 Service Unavailable", "all adapters in memory are in use"
    front = await pool(*engines)
    async with front.post(model="chat-sql") as got:
        error = (await got.json())["error"]
        assert (got.status, got.headers["retry-after"]) == (503, "5")
    assert error["code"] == "adapter_load_failed"
    assert error["message"] == (
        "no engine has the adapter `chat-sql` in memory: no engine could load it: "
        "all adapters in memory are in use"
    )
    assert (await ask(front, "chat"))[0] == 200


async def test_a_load_that_takes_too_long_is_a_503(pool):
    engine = AdapterEngine()
    engine.gate.clear()
    front = await pool(engine, wait_for_endpoint_s=0.2)
    status, body = await ask(front)
    assert (status, body["error"]["code"]) == (503, "adapter_load_failed")
    assert body["error"]["message"].endswith("it was not loaded in time")
    engine.gate.set()


async def test_an_idle_copy_makes_room(pool, until):
    names = ["a", "b", "c"]
    bodies = [adapter(name, day=day) for day, name in enumerate(names, 1)]
    engine = AdapterEngine()
    front = await pool(engine, adapters=bodies, slots=2)
    for name in names:
        assert (await ask(front, name))[0] == 200
    assert [call[0] for call in engine.calls] == ["load", "load", "unload", "load"]
    assert len(engine.copies) == 2


async def test_an_engine_reads_an_evicted_adapter_again_without_a_load(pool):
    engine = AdapterEngine(NAME)
    engine.copies[NAME] = "disk"
    front = await pool(engine)
    assert (await ask(front))[0] == 200
    assert engine.calls == []


async def test_an_adapter_that_cannot_be_read_again_harms_no_other_request(pool):
    engine = AdapterEngine(NAME)
    engine.copies[NAME], engine.read_error = "disk", "adapter sql cannot be read again"
    front = await pool(engine, wait_for_endpoint_s=0.1)
    for _ in range(4):
        assert (await ask(front))[0] == 503
    assert not front.gateway.state.endpoints.suspects
    assert (await ask(front, "chat"))[0] == 200


async def test_vllm_lists_adapters_as_models(pool):
    cold, warm = AdapterEngine(is_vllm=True), AdapterEngine(NAME, is_vllm=True)
    front = await pool(cold, warm)
    assert (await ask(front))[0] == 200
    assert warm.served == [NAME]


async def test_a_copy_that_is_gone_is_loaded_again(pool, monkeypatch):
    """The engine answers 404 before the next poll shows that it has unloaded the adapter."""
    monkeypatch.setattr(adapter_polls, "POLL_INTERVAL_S", 60)
    engine = AdapterEngine(NAME, is_vllm=True)
    front = await pool(engine)
    engine.copies.clear()
    assert (await ask(front))[0] == 200
    assert engine.calls == [("load", NAME)]
    assert await front.metric("penstock_gateway_retries_total", reason="no_copy") == 1


async def test_an_adapter_that_another_client_has_loaded_counts_as_loaded(pool, monkeypatch):
    monkeypatch.setattr(adapter_polls, "POLL_INTERVAL_S", 60)
    engine = AdapterEngine()
    front = await pool(engine)
    engine.copies[NAME] = "host"
    assert (await ask(front))[0] == 200
    assert front.gateway.state.stats.adapters.get(BUILT).counts().load_failures == 0


async def test_each_side_has_its_own_copies(pool):
    """The side is drawn by weight; a cold one loads the adapter, and keeps its share."""
    warm, cold = AdapterEngine(NAME), AdapterEngine()
    front = await pool(warm, cold, revisions=["r1", "r2"])
    for _ in range(60):
        assert (await ask(front))[0] == 200
    assert cold.calls == [("load", NAME)]
    assert min(len(warm.served), len(cold.served)) > 12  # one in 100,000 times by chance


async def test_a_service_without_adapter_settings_loads_none(pool):
    engine = AdapterEngine()
    front = await pool(engine, slots=0)
    status, body = await ask(front)
    assert (status, body["error"]["code"]) == (503, "adapter_load_failed")
    assert body["error"]["message"] == (
        "no engine of default/chat takes adapters: set spec.engine.lora of the service"
    )
    assert engine.calls == []


async def test_a_deleted_adapter_ends_the_wait(pool, until):
    engine = AdapterEngine()
    engine.gate.clear()
    front = await pool(engine)
    waiting = asyncio.create_task(ask(front))
    await until(lambda: engine.calls)
    front.snapshots.publish(Snapshot(front.snapshots.current.services))
    engine.gate.set()
    assert (await waiting)[0] == 404


async def test_engines_of_services_without_adapters_are_not_polled(pool):
    engine = AdapterEngine()
    front = await pool(engine, adapters=())
    await asyncio.sleep(0.2)
    assert engine.num_lists == 0
    (service,) = front.snapshots.current.services
    front.snapshots.publish(Snapshot((service,), (), (BUILT,)))
    await asyncio.sleep(0.2)
    assert engine.num_lists > 1
    front.snapshots.publish(Snapshot((service,)))
    await asyncio.sleep(0.1)
    num_lists = engine.num_lists
    await asyncio.sleep(0.2)
    assert engine.num_lists == num_lists


async def test_an_engine_that_does_not_list_its_adapters_keeps_its_copies_for_a_while(pool):
    engine = AdapterEngine(NAME)
    front = await pool(engine)
    engine.is_answering_lists = False
    await asyncio.sleep(0.2)
    assert (await ask(front))[0] == 200
    residency = front.gateway.state.adapters.residency
    now = residency._now
    residency._now = lambda: now() + 60
    assert residency.copies("default/engine-0") is None


async def test_requests_wait_for_the_first_list(pool, start_engine, start_gateway, make_service):
    """A gateway that has just started does not load what engines have."""
    engine = AdapterEngine(NAME)
    front = await pool(engine, adapters=())
    (service,) = front.snapshots.current.services
    front.snapshots.publish(Snapshot((service,), (), (BUILT,)))
    assert (await ask(front))[0] == 200
    assert engine.calls == []


async def test_a_side_whose_engines_take_no_adapters_gets_no_requests(pool):
    old, new = AdapterEngine(), AdapterEngine(NAME)
    takers = {"default/engine-1": LoraEngine("Penstock", 4)}
    front = await pool(old, new, revisions=["r1", "r2"], slots=0, more={"lora_engines": takers})
    for _ in range(10):
        assert (await ask(front))[0] == 200
    assert (len(new.served), old.served, old.num_lists) == (10, [], 0)


async def report_of(front):
    async with front.client.get(front.url + stats_report.PATH) as got:
        text = await got.text()
    return json.loads(text), stats_report.parse("g", text)


async def test_the_stats_report_counts_each_version(pool, until):
    engine = AdapterEngine()
    engine.gate.clear()
    front = await pool(engine)
    encoded, _ = await report_of(front)
    assert "adapters" not in encoded  # an operator that does not know adapters reads the report
    waiting = asyncio.create_task(ask(front))
    await until(lambda: engine.calls)
    encoded, report = await report_of(front)
    assert encoded["adapters"] == {
        "default/chat": {NAME: {"arrivals": 1, "misses": 1, "waiting": 1}}
    }
    assert report.adapters == {"default/chat": {NAME: AdapterCounts(1, misses=1, waiting=1)}}
    engine.gate.set()
    await waiting
    await front.idle()
    _, report = await report_of(front)
    counts = report.adapters["default/chat"][NAME]
    assert (counts.arrivals, counts.loads, counts.waiting, counts.in_flight) == (1, 1, 0, 0)
    assert report.services["default/chat"].arrivals == 1
    (service,) = front.snapshots.current.services
    front.snapshots.publish(Snapshot((service,)))
    _, report = await report_of(front)
    assert report.adapters == {}


OBJECTIVES = Objectives.parse("1s", None, None)


async def test_with_objectives_a_slot_is_reserved_where_the_adapter_is(pool, until):
    """An engine of unknown throughput gets one prompt at a time: the second request waits for the copy."""
    gate = asyncio.Event()

    class Slow(AdapterEngine):
        async def _complete(self, request, model):
            self.served.append(model)
            await gate.wait()
            await request.whole(b"{}")

    cold, warm = Slow(), Slow(NAME)
    front = await pool(cold, warm, more={"objectives": OBJECTIVES})
    first, second = (
        asyncio.create_task(front.ask(model="chat-sql", prompt="x" * 400)) for _ in range(2)
    )
    await until(lambda: warm.served and front.gateway.state.waiting == 1)
    base = asyncio.create_task(ask(front, "chat"))
    await until(lambda: cold.served)
    assert (cold.served, warm.served) == (["chat"], [NAME])
    gate.set()
    assert {status for status, _ in await asyncio.gather(first, second, base)} == {200}
    assert warm.served == [NAME, NAME]
    await front.idle()


async def test_with_objectives_a_cold_adapter_is_loaded_once(pool):
    engines = AdapterEngine(load_s=0.1), AdapterEngine(load_s=0.1)
    front = await pool(*engines, more={"objectives": OBJECTIVES})
    results = await asyncio.gather(*(front.ask(model="chat-sql") for _ in range(10)))
    assert {status for status, _ in results} == {200}
    assert [call for engine in engines for call in engine.calls] == [("load", NAME)]
    await front.idle()


async def test_with_objectives_an_engine_that_drops_a_copy_loads_it_again(pool, until):
    engine = AdapterEngine(NAME)
    front = await pool(engine, more={"objectives": OBJECTIVES})
    engine.copies.clear()
    assert (await ask(front))[0] == 200
    await front.idle()
