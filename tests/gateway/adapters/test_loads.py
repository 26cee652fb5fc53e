"""Loads on demand, and the outcomes of requests that wait for them."""

import asyncio
from collections import Counter

from tests.gateway.adapters.adapter_engine import (
    BUILT,
    NAME,
    AdapterEngine,
    EndingEngine,
    adapter,
    ask,
)
from tests.support.gateway_snapshots import build

from penstock.gateway.adapters import copy_waiters
from penstock.gateway.adapters import polls as adapter_polls
from penstock.gateway.snapshots.snapshot import Snapshot


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
    assert [engine.calls for engine in engines] == [[("load", NAME)]] * 2
    assert (await ask(front, "chat"))[0] == 200
    counts = front.gateway.state.stats.adapters.get(BUILT).counts()
    assert (counts.loads, counts.load_failures, counts.failed) == (0, 2, 5)
    async with front.post(model="chat-sql") as got:
        assert 1 <= int(got.headers["retry-after"]) <= 5


async def test_an_engine_that_refuses_does_not_decide_for_the_others(pool, until):
    """Its mount may be broken. It is not asked again, and no other is asked after two refusals."""
    engines = [AdapterEngine() for _ in range(3)]
    engines[0].errors[NAME] = "400 Bad Request", "input/output error"
    front = await pool(*engines)
    residency = front.gateway.state.adapters.residency
    pods = [each.pod for each in front.snapshots.current.services[0].endpoints]
    for _ in range(3):
        assert (await ask(front))[0] == 200
        for engine in engines:
            engine.copies.clear()
        await until(lambda: not residency.holders(pods, NAME))
    assert engines[0].calls == [("load", NAME)]
    assert {len(engine.served) for engine in engines[1:]} == {0, 3}
    for engine in engines[1:]:
        engine.errors[NAME] = "400 Bad Request", "input/output error"
    status, body = await ask(front)
    assert (status, body["error"]["code"]) == (424, "adapter_load_failed")
    assert [len(engine.calls) for engine in engines].count(0) == 1


async def test_an_engine_that_refuses_and_one_without_room_are_a_503(pool):
    engines = AdapterEngine(), AdapterEngine()
    engines[0].errors[NAME] = "400 Bad Request", "input/output error"
    engines[1].errors[NAME] = "503 Service Unavailable", "all adapters in memory are in use"
    front = await pool(*engines)
    status, body = await ask(front)
    assert status == 503
    assert body["error"]["message"].endswith("could load it: all adapters in memory are in use")
    assert [engine.calls for engine in engines] == [[("load", NAME)]] * 2


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


async def test_an_adapter_that_ends_engines_does_not_end_all_of_them(pool):
    engines = [EndingEngine() for _ in range(5)]
    front = await pool(*engines)
    for _ in range(3):
        status, body = await ask(front)
        assert (status, body["error"]["code"]) == (424, "adapter_load_failed")
        assert "the engine does not answer" in body["error"]["message"]
    assert sum(len(engine.calls) for engine in engines) == 2
    assert (await ask(front, "chat"))[0] == 200


async def test_an_engine_that_ends_during_a_load_is_replaced_by_another_one(pool):
    ending, other = EndingEngine(), AdapterEngine()
    front = await pool(ending, other)
    for _ in range(3):
        assert (await ask(front))[0] == 200
        other.copies.clear()
        await asyncio.sleep(0.12)
    assert len(other.served) == 3


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


async def test_no_request_goes_to_a_copy_that_is_being_unloaded(pool):
    cold, warm = adapter("cold"), adapter("warm")
    engine = AdapterEngine(load_s=0.1)
    front = await pool(engine, adapters=[cold, warm], slots=1)
    assert (await ask(front, "warm"))[0] == 200
    await asyncio.sleep(0.12)
    asking = asyncio.create_task(ask(front, "cold"))
    await asyncio.sleep(0.05)
    assert [what for what, _ in engine.calls] == ["load", "unload"]
    assert (await ask(front, "warm"))[0] == 200
    assert (await asking)[0] == 200
    assert len(engine.served) == 3


async def test_more_adapters_than_slots_are_all_answered(pool):
    """A copy that was loaded for a request is not unloaded before it is sent."""
    names = [f"a{number}" for number in range(6)]
    engine = AdapterEngine(load_s=0.01)
    front = await pool(engine, adapters=[adapter(name) for name in names], slots=2)
    for _ in range(3):
        results = await asyncio.gather(*(ask(front, name) for name in names))
        assert {status for status, _ in results} == {200}
    loads = sum(what == "load" for what, _ in engine.calls)
    assert loads <= len(engine.served)


async def test_a_load_that_takes_too_long_is_a_503(pool):
    engine = AdapterEngine()
    engine.gate.clear()
    front = await pool(engine, wait_for_endpoint_s=0.2)
    status, body = await ask(front)
    assert (status, body["error"]["code"]) == (503, "adapter_load_failed")
    assert body["error"]["message"].endswith("it was not loaded in time")
    engine.gate.set()


async def test_an_adapter_is_not_blamed_for_an_unload_that_failed_before_its_load(pool):
    class Failing(AdapterEngine):
        async def __call__(self, request):
            if request.path == "/v1/unload_lora_adapter":
                self.calls.append(("unload", ""))
                body = b'{"error": {"message": "it broke"}}'
                await request.whole(body, "500 Internal Server Error")
            else:
                await super().__call__(request)

    bodies = [adapter("a"), adapter("b", day=2)]
    engine = Failing()
    front = await pool(engine, adapters=bodies, slots=1)
    assert (await ask(front, "a"))[0] == 200
    for _ in range(2):
        await asyncio.sleep(0.12)  # until the engine lists its copy as idle
        status, body = await ask(front, "b")
        assert (status, body["error"]["code"]) == (503, "adapter_load_failed")
    assert [what for what, _ in engine.calls] == ["load", "unload", "unload"]


async def test_a_refused_load_ends_the_wait_of_all_requests_for_the_adapter(
    pool, until, monkeypatch
):
    monkeypatch.setattr(copy_waiters, "RECHECK_S", 60)
    engine = AdapterEngine()
    engine.errors[NAME] = "400 Bad Request", "pickle file"
    engine.gate.clear()
    front = await pool(engine)
    waiting = [asyncio.create_task(ask(front)) for _ in range(5)]
    await until(lambda: front.gateway.state.waiting == 5)
    engine.gate.set()
    async with asyncio.timeout(5):
        assert [(await each)[0] for each in waiting] == [424] * 5


async def test_the_end_of_a_request_wakes_one_that_waits_for_its_slot(pool, until, monkeypatch):
    monkeypatch.setattr(copy_waiters, "RECHECK_S", 60)
    warm, cold = adapter("warm"), adapter("cold", day=2)
    engine = AdapterEngine(is_vllm=True)  # whose lists show no requests
    front = await pool(engine, adapters=[warm, cold], slots=1)
    engine.answers.clear()
    asking = asyncio.create_task(ask(front, "warm"))
    await until(lambda: engine.served)
    waiting = asyncio.create_task(ask(front, "cold"))
    await until(lambda: front.gateway.state.waiting == 1)
    await asyncio.sleep(0.2)  # longer than the guard of a copy that was loaded for a request
    assert [what for what, _ in engine.calls] == ["load"]
    engine.answers.set()
    async with asyncio.timeout(2):
        assert [(await each)[0] for each in (asking, waiting)] == [200, 200]
    assert [what for what, _ in engine.calls] == ["load", "unload", "load"]


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


async def test_a_deleted_adapter_ends_the_wait(pool, until):
    engine = AdapterEngine()
    engine.gate.clear()
    front = await pool(engine)
    waiting = asyncio.create_task(ask(front))
    await until(lambda: engine.calls)
    front.snapshots.publish(Snapshot(front.snapshots.current.services))
    engine.gate.set()
    assert (await waiting)[0] == 404


async def test_a_copy_that_somebody_else_loads_is_noticed_soon(pool, until, monkeypatch):
    """The only slot holds an adapter in use; the operator loads the wanted one meanwhile."""
    monkeypatch.setattr(adapter_polls, "POLL_INTERVAL_S", 60)
    monkeypatch.setattr(adapter_polls, "WAITING_INTERVAL_S", 0.02)
    other = "other@00000000"
    engine = AdapterEngine(other)
    front = await pool(engine, slots=1)
    waiting = asyncio.create_task(ask(front))
    await until(lambda: front.gateway.state.waiting == 1)
    engine.copies = {NAME: "host"}
    async with asyncio.timeout(2):
        assert (await waiting)[0] == 200
    assert engine.calls == []
    await asyncio.sleep(0.1)
    num_lists = engine.num_lists
    await asyncio.sleep(0.2)
    assert engine.num_lists == num_lists


async def test_requests_that_wait_for_one_load_do_not_slow_down_others(pool, until):
    """Waiting requests wake at the end of the load, and not when a request ends elsewhere."""
    engine = AdapterEngine("warm@fe233ae4")
    engine.gate.clear()
    front = await pool(engine, adapters=[adapter("cold"), adapter("warm", day=2)])
    waiting = [asyncio.create_task(ask(front, "cold")) for _ in range(50)]
    await until(lambda: front.gateway.state.waiting == 50)
    choices = 0
    choose = front.gateway.state.adapters.choose

    def count(*args):
        nonlocal choices
        choices += 1
        return choose(*args)

    front.gateway.state.adapters.choose = count
    for _ in range(20):
        assert (await ask(front, "warm"))[0] == 200
    assert choices <= 100  # each looks again once a second
    engine.gate.set()
    assert {status for status, _ in await asyncio.gather(*waiting)} == {200}
