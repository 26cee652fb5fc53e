"""Requests for adapters of a service with latency objectives."""

import asyncio

from tests.gateway.adapters.adapter_engine import BASE, NAME, AdapterEngine, adapter, ask

from penstock.core.spec.objectives import Objectives

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


async def test_a_copy_on_a_failing_engine_never_stops_the_gateway(pool):
    """The gateway ejects only one of three engines, so a failing one with the copy still serves."""
    engines = AdapterEngine(NAME), AdapterEngine(NAME), AdapterEngine()
    revisions = ["r1", "r2", "r2"]
    front = await pool(*engines, revisions=revisions, more={"objectives": OBJECTIVES})
    state, (service,) = front.gateway.state, front.snapshots.current.services
    first, second, _ = service.endpoints
    for endpoint, failures in ((first, 8), (second, 5)):
        for _ in range(failures):
            state.endpoints.note_failure(endpoint.pod, state.now())
    assert state.endpoints.ejected(service.endpoints, state.now()) == {first.pod}
    started_s = state.now()
    assert (await ask(front))[0] == 200
    assert state.now() - started_s < 0.5  # the ejections last for 1 s
    assert engines[1].served == [NAME]
    await front.idle()


async def test_adapters_that_wait_for_a_busy_engine_do_not_unload_each_other(pool, until):
    """The engine has one slot, and computes a long prompt of the base model."""
    gate = asyncio.Event()

    class Slow(AdapterEngine):
        async def _complete(self, request, model):
            if model == BASE:
                await gate.wait()
            await super()._complete(request, model)

    engine = Slow()
    bodies = [adapter(name, day=day) for day, name in enumerate("abc", 1)]
    front = await pool(engine, adapters=bodies, slots=1, more={"objectives": OBJECTIVES})
    long = asyncio.create_task(front.ask(model="chat", prompt="x" * 400))
    await until(lambda: front.gateway.state.engines.tokens)
    asking = [asyncio.create_task(ask(front, name)) for name in "abc"]
    await until(lambda: front.gateway.state.waiting == 3)
    await asyncio.sleep(0.5)
    assert [what for what, _ in engine.calls] == ["load"]
    stats = front.gateway.state.stats.adapters.of_service("default/chat").values()
    assert sum(each.counts().waiting for each in stats) == 3
    gate.set()
    assert {status for status, _ in await asyncio.gather(long, *asking)} == {200}
    assert [what for what, _ in engine.calls].count("load") == 3
    await front.idle()
    assert not any(each.queued for each in stats)
