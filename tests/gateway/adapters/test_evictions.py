"""Evictions for other adapters: idle copies, turns with busy adapters, endless requests."""

import asyncio

import pytest
from tests.gateway.adapters.adapter_engine import (
    AdapterEngine,
    adapter,
    ask,
)
from tests.support.gateway_snapshots import build

from penstock.core.adapters import drain, route
from penstock.core.spec.objectives import Objectives
from penstock.gateway.adapters import copies as adapter_copies
from penstock.gateway.adapters import copy_waiters


async def test_an_idle_copy_makes_room(pool, until):
    names = ["a", "b", "c"]
    bodies = [adapter(name, day=day) for day, name in enumerate(names, 1)]
    engine = AdapterEngine()
    front = await pool(engine, adapters=bodies, slots=2)
    for name in names:
        assert (await ask(front, name))[0] == 200
    assert [call[0] for call in engine.calls] == ["load", "load", "unload", "load"]
    assert len(engine.copies) == 2


async def test_a_new_gateway_unloads_what_statuses_show_the_least_demand_for(pool):
    """Without the statuses the name would decide, and the most popular adapter be unloaded."""
    names = ("aa-popular", "zz-cold", "new")
    bodies = [adapter(name, uri=f"pvc://a/{name}") for name in names]
    for body, demand in zip(bodies, ("3.1", "0.01"), strict=False):
        body["status"] = {"demand": {"requestsPerSecond": demand}}
    popular, _, cold = (each.engine_name for each in build([], [], [], bodies).adapters)
    engine = AdapterEngine(popular, cold, slots=2)
    front = await pool(engine, adapters=bodies, slots=2)
    assert (await ask(front, "new"))[0] == 200
    assert engine.calls[0] == ("unload", cold)


class Slow(AdapterEngine):
    """Answers after a while, so that several clients keep a copy busy all the time."""

    async def _complete(self, request, model):
        await asyncio.sleep(0.05)
        await super()._complete(request, model)


@pytest.mark.parametrize("objectives", [None, Objectives(ttft_s=10.0)])
async def test_an_adapter_that_has_waited_takes_its_turn_with_busy_ones(
    pool, until, monkeypatch, objectives
):
    monkeypatch.setattr(route, "DRAIN_AFTER_S", 0.2)
    monkeypatch.setattr(adapter_copies, "DRAIN_AFTER_S", 0.2)
    monkeypatch.setattr(copy_waiters, "RECHECK_S", 0.05)
    bodies = [adapter(name, uri=f"pvc://a/{name}") for name in ("busy", "waiting")]
    busy, waiting = (each.engine_name for each in build([], [], [], bodies).adapters)
    engine, answers, is_over = Slow(busy), [], asyncio.Event()
    front = await pool(
        engine, adapters=bodies, slots=1, more={"objectives": objectives}, wait_for_endpoint_s=8
    )

    async def client(delay_s):
        await asyncio.sleep(delay_s)
        while not is_over.is_set():
            answers.append((await ask(front, "busy"))[0])

    clients = [asyncio.create_task(client(number / 60)) for number in range(4)]
    assert [(await ask(front, "waiting"))[0] for _ in range(2)] == [200, 200]
    num_before = len(answers)
    await until(lambda: len(answers) >= num_before + 8)
    is_over.set()
    await asyncio.gather(*clients)
    assert set(answers) == {200}
    assert engine.served.count(waiting) == 2


class FirstIsEndless(AdapterEngine):
    """Its first request ends only with the test."""

    async def _complete(self, request, model):
        if self.served:
            self.answers = asyncio.Event()
            self.answers.set()
        await super()._complete(request, model)


async def test_an_endless_request_keeps_others_of_its_adapter_waiting_for_a_bounded_time(
    pool, until, monkeypatch
):
    monkeypatch.setattr(route, "DRAIN_AFTER_S", 0.1)
    monkeypatch.setattr(adapter_copies, "DRAIN_AFTER_S", 0.1)
    monkeypatch.setattr(copy_waiters, "RECHECK_S", 0.05)
    monkeypatch.setattr(drain, "MAX_DRAIN_S", 0.5)
    bodies = [adapter(name, uri=f"pvc://a/{name}") for name in ("busy", "waiting")]
    busy = build([], [], [], bodies).adapters[0].engine_name
    engine = FirstIsEndless(busy)
    is_over = engine.answers = asyncio.Event()
    front = await pool(engine, adapters=bodies, slots=1)
    ((pod, _),) = front.snapshots.current.services[0].lora_engines.items()
    endless = asyncio.create_task(ask(front, "busy"))
    await until(lambda: engine.served)
    waiting = asyncio.create_task(ask(front, "waiting"))
    await until(lambda: front.gateway.state.adapters.residency.draining(pod) == {busy})
    async with asyncio.timeout(5):
        assert (await ask(front, "busy"))[0] == 200
    assert not waiting.done()
    is_over.set()
    assert [(await each)[0] for each in (endless, waiting)] == [200, 200]
