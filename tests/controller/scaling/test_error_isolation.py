"""An unexpected error on one service stops no other, and is counted."""

import asyncio
import logging
from dataclasses import replace

import pytest

from penstock.controller.scaling import scaler as scalers
from penstock.controller.scaling.scale_targets import ScaleTarget
from penstock.core.spec.objectives import Objectives


def other_service(world, **scaling):
    """Another service on the same engine. scaling: what its spec says otherwise."""
    mine, *_ = world.targets()
    service = replace(mine.service, name="other", scaling=replace(mine.service.scaling, **scaling))
    return replace(mine, service=service)


async def test_a_decision_that_fails_is_of_one_service_alone(world):
    world.others = [other_service(world, kv_utilization_target=0.0)]  # divides by it
    world.engine.usage = 1.0
    await world.tick()
    assert world.report().desired == 2
    assert world.errors("scaler") == 1
    await world.tick()
    assert world.errors("scaler") == 2


async def test_engines_that_cannot_be_looked_at_are_as_good_as_silent(world, monkeypatch):
    mine, *_ = world.targets()
    ((view, _),) = mine.pods
    unreadable = ((view, "broken"),)
    read = world.scraper.read

    async def read_or_fail(namespace, pod, address):
        if address == "broken":
            raise RuntimeError("unexpected")
        return await read(namespace, pod, address)

    monkeypatch.setattr(world.scraper, "read", read_or_fail)
    world.others = [replace(mine, service=replace(mine.service, name="other"), pods=unreadable)]
    world.engine.usage = 1.0
    await world.tick()
    assert world.report().desired == 2
    assert world.errors("observer") == 1


async def test_a_gateway_that_cannot_be_looked_at_holds_and_ends_nothing(world):
    world.gateways = [{"metadata": {}}]
    world.engine.usage = 1.0
    await world.tick()
    assert world.errors("observer") == 1
    assert world.report() is not None


async def test_a_quota_that_cannot_be_read_is_told_once(world, caplog):
    odd = {"requests.nvidia.com/gpu": "many"}
    world.quotas = [
        {"metadata": {"namespace": "a", "name": "odd"}, "spec": {}, "status": {"hard": odd}}
    ]
    world.engine.usage = 1.0
    with caplog.at_level(logging.WARNING):
        await world.tick(3)
    told = [r.getMessage() for r in caplog.records if "ResourceQuota" in r.getMessage()]
    assert told == [
        "the ResourceQuota a/odd is not counted: requests.nvidia.com/gpu: 'many' is not a quantity"
    ]
    assert world.report().desired == 2


async def test_what_is_granted_in_one_namespace_fails_for_it_alone(world):
    world.accelerator = ("nvidia.com/gpu", 1)
    world.engine.usage = 1.0
    # Priorities that cannot be compared.
    for name, priority in (("a", 0), ("b", None)):
        other = other_service(world, quota_priority=priority)
        service = replace(other.service, name=name, namespace="away")
        world.others = (*world.others, replace(other, service=service))
    world.quotas = [
        {
            "metadata": {"namespace": namespace, "name": "q"},
            "spec": {},
            "status": {"hard": {"requests.nvidia.com/gpu": "8"}},
        }
        for namespace in ("away", "default")
    ]
    await world.tick()
    assert world.report().desired == 2
    assert world.errors("scaler") == 1


async def test_a_tick_that_fails_is_followed_by_the_next(world, monkeypatch):
    monkeypatch.setattr(scalers, "TICK_S", 0.0)
    looks, done = 0, asyncio.Event()

    def targets() -> list[ScaleTarget]:
        nonlocal looks
        looks += 1
        if looks == 3:
            done.set()
        raise KeyError("status")

    world.scaler._targets = targets
    loop = asyncio.create_task(world.scaler.run())
    await done.wait()
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
    assert world.errors("scaler") >= 2


async def test_a_decision_counts_though_nobody_can_be_told_of_it(world, monkeypatch):
    monkeypatch.setattr(scalers, "logger", scalers.logger)
    world.objectives = Objectives(2.0, 0.1, 0.99)
    world.recorder.publish = None
    await world.tick()
    assert world.errors("recorder") == 1
    assert world.report() is not None


async def test_a_decision_counts_though_what_is_learned_cannot_be_kept(world):
    world.objectives = Objectives(2.0, 0.1, 0.99)
    world.kube.apply = None
    world.add_gateway(world.gateway_port, "g")
    await world.serve(120, 4)
    assert world.errors("memory") >= 1
    assert world.report() is not None
