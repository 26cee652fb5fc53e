"""Requests for adapters go to engines that have them, over real sockets."""

import asyncio

from tests.gateway.adapters.adapter_engine import BUILT, NAME, AdapterEngine, adapter, ask
from tests.support.gateway_snapshots import build

from penstock.core.observed.lora_engine import LoraEngine
from penstock.core.routing.pick import Side
from penstock.gateway.snapshots.snapshot import Snapshot


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


async def test_each_side_has_its_own_copies(pool):
    """The side is drawn by weight; a cold one loads the adapter, and keeps its share."""
    warm, cold = AdapterEngine(NAME), AdapterEngine()
    front = await pool(warm, cold, revisions=["r1", "r2"])
    for _ in range(60):
        assert (await ask(front))[0] == 200
    assert cold.calls == [("load", NAME)]
    assert min(len(warm.served), len(cold.served)) > 12  # one in 100,000 times by chance


async def test_a_side_full_of_minimum_copies_makes_room_if_the_other_side_has_them(pool):
    least, more = adapter("least"), adapter("more", day=2)
    least["spec"]["placement"] = {"minReplicas": 1}
    (name,) = (a.engine_name for a in build([], [], [], [least]).adapters)
    old, new = AdapterEngine(name), AdapterEngine(name)
    front = await pool(
        old, new, adapters=[least, more], revisions=["r1", "r2"], slots=1,
        wait_for_endpoint_s=1.0, more={"weights": {Side("r2"): 100}},
    )  # fmt: skip
    assert (await ask(front, "more"))[0] == 200
    assert [what for what, _ in new.calls] == ["unload", "load"]
    assert old.calls == []


async def test_a_service_without_adapter_settings_loads_none(pool):
    engine = AdapterEngine()
    front = await pool(engine, slots=0)
    status, body = await ask(front)
    assert (status, body["error"]["code"]) == (503, "adapter_load_failed")
    assert body["error"]["message"] == (
        "no engine of default/chat takes adapters: set spec.engine.lora of the service"
    )
    assert engine.calls == []


async def test_an_adapter_that_is_not_fetched_yet_is_loaded_nowhere(pool):
    hub, engine = adapter("hub"), AdapterEngine()
    hub["spec"]["model"]["uri"] = "hf://org/sql"
    front = await pool(engine, adapters=[hub])
    status, body = await ask(front, "hub")
    assert (status, engine.calls) == (503, [])
    assert "its files are not fetched yet" in body["error"]["message"]


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
    for _ in range(3):  # no engine is known to have it, and this one had it
        assert (await ask(front))[0] == 200
    assert engine.calls == []


async def test_a_copy_that_is_known_comes_before_one_whose_list_hangs(pool):
    hanging, answering = AdapterEngine(NAME), AdapterEngine(NAME)
    front = await pool(hanging, answering)
    residency = front.gateway.state.adapters.residency
    residency._pods["default/engine-0"].listed_s -= 60
    hanging.is_answering_lists = False
    for _ in range(10):
        assert (await ask(front))[0] == 200
    assert (hanging.served, len(answering.served)) == ([], 10)


async def test_a_copy_that_an_engine_has_lost_while_its_list_hung_is_loaded_again(pool, until):
    engine = AdapterEngine(NAME)
    front = await pool(engine)
    engine.is_answering_lists = False
    residency = front.gateway.state.adapters.residency
    residency._pods["default/engine-0"].listed_s -= 60
    engine.copies.clear()
    asking = asyncio.create_task(ask(front))
    await until(lambda: front.gateway.state.waiting == 1)
    engine.is_answering_lists = True
    assert (await asking)[0] == 200
    assert engine.calls == [("load", NAME)]


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


async def test_404_for_another_reason_is_passed_on_after_two_loads(pool):
    """The engine lists the adapter, and yet answers 404 to a request for it."""

    class Lost(AdapterEngine):
        async def _complete(self, request, model):
            self.served.append(model)
            await request.whole(b'{"error": {"message": "no such route"}}', "404 Not Found")

    engine = Lost(NAME)
    front = await pool(engine)
    status, body = await ask(front)
    assert (status, body["error"]["message"]) == (404, "no such route")
    assert (engine.served, engine.calls) == ([NAME] * 3, [("load", NAME)] * 2)
