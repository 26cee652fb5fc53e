"""Polls of engines for their adapters: after lists that cannot be read, and of many engines."""

import asyncio
from collections import Counter
from contextlib import ExitStack

import pytest
from tests.gateway.adapters.adapter_engine import NAME, AdapterEngine, ask

from penstock.clients.pods.engine_adapters import (
    LIST_FRACTION,
    LIST_REQUEST_S,
    Answer,
    EngineAdapters,
)
from penstock.clients.pods.loop_share import LoopShare
from penstock.core.observed.lora_engine import LoraEngine
from penstock.core.routing.pick import Endpoint, Side
from penstock.gateway.adapters import polls as adapter_polls
from penstock.gateway.adapters.polls import AdapterPolls
from penstock.gateway.adapters.residency import BELIEVE_S, AdapterResidency
from penstock.gateway.snapshots.snapshot import Service, Snapshot


class HostileEngine(AdapterEngine):
    """An engine whose list has an infinite number while `is_hostile`."""

    is_hostile = False

    async def _list(self, request):
        if not self.is_hostile:
            await super()._list(request)
            return
        self.num_lists += 1
        await request.whole(b'{"data": [{"id": "a", "tier": "disk", "requests": 1e999}]}')


async def test_after_a_list_with_an_infinite_number_the_next_one_counts(pool, until):
    engine = HostileEngine(NAME)
    front = await pool(engine)
    residency = front.gateway.state.adapters.residency
    (pod,) = front.snapshots.current.services[0].lora_engines
    engine.is_hostile, num_before = True, engine.num_lists
    await until(lambda: engine.num_lists >= num_before + 2)
    assert residency.copies(pod).keys() == {NAME}
    engine.copies = {}
    engine.is_hostile = False
    await until(lambda: residency.copies(pod) == {})
    assert (await ask(front))[0] == 200


async def test_an_unexpected_error_ends_no_polls(pool, until, monkeypatch, caplog):
    engine = AdapterEngine(NAME)
    front = await pool(engine)
    residency = front.gateway.state.adapters.residency
    (pod,) = front.snapshots.current.services[0].lora_engines
    num_errors = 0

    async def fail(*_):
        nonlocal num_errors
        num_errors += 1
        raise OverflowError("too large")

    with monkeypatch.context() as patched:
        patched.setattr(EngineAdapters, "list", fail)
        await until(lambda: num_errors >= 2)
        engine.copies = {}
    await until(lambda: residency.copies(pod) == {})
    (told,) = [each for each in caplog.records if "does not list its adapters" in each.message]
    assert told.exc_info[0] is OverflowError


class ChangingEngines(EngineAdapters):
    """Engines whose every list differs from the last one. num_lists: by namespace.

    The gateway works for 5 ms on each change, on a processor whose time is computed.
    """

    def __init__(self):
        super().__init__(now=asyncio.get_running_loop().time)
        self.cpu_s, self.num_lists = 0.0, Counter()
        self.share = LoopShare(LIST_FRACTION, LIST_REQUEST_S, lambda: self.cpu_s)

    async def _request(self, *_):
        return Answer(200, b'{"data": [{"id": "a%d", "tier": "device"}]}' % self.num_lists.total())

    def note_change(self, service):
        self.num_lists[service.partition("/")[0]] += 1
        self.cpu_s += 0.005


def service_with_engines(namespace, number):
    engines = [Endpoint(f"{namespace}/p{each}", f"10.0.0.{each}:1", "r1") for each in range(number)]
    runtimes = {each.pod: LoraEngine("Penstock", 4) for each in engines}
    weights = {Side("r1"): 100}
    return Service(
        namespace, "chat", "chat", 0, weights, tuple(engines), lora_engines=runtimes, adapter="a"
    )


@pytest.mark.parametrize(("num_engines", "num_lists"), [(1, 50), (200, 189)])
def test_the_lists_of_a_namespace_take_a_tenth_of_the_event_loop(
    run_virtually, monkeypatch, num_engines, num_lists
):
    """Requests wait for copies of all engines. Lists of another namespace come as often as without these."""

    async def main():
        monkeypatch.setattr(adapter_polls, "POLL_INTERVAL_S", 1.0)
        now = asyncio.get_running_loop().time
        engines, residency = ChangingEngines(), AdapterResidency(now)
        residency.listeners.append(engines.note_change)
        polls = AdapterPolls(engines, residency)
        services = service_with_engines("theirs", num_engines), service_with_engines("ours", 1)
        with ExitStack() as waiting:
            for service in services:
                waiting.enter_context(polls.wait(service.key))
            polls.update(Snapshot(services))
            await asyncio.sleep(9.99)
        await polls.close()
        assert engines.num_lists == {"theirs": num_lists, "ours": 50}

    run_virtually(main)


def test_a_list_counts_from_when_it_was_asked_for():
    now_s = 5.0
    residency = AdapterResidency(lambda: now_s)
    residency.note_list("a/p0", {}, 0.0)
    now_s = BELIEVE_S
    assert residency.copies("a/p0") == {}
    now_s += 0.1
    assert residency.copies("a/p0") is None
